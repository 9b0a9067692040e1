package plot

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
)

func TestChart_IsXML(t *testing.T) {
	t.Parallel()
	c := Chart{Title: "a < b & c", XLog: true, YLog: true, Series: []Series{{Name: "x", Points: []Point{{1, 0}, {10, 5}, {100, 700}}}}}
	for decoder := xml.NewDecoder(strings.NewReader(c.SVG())); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if svg := c.SVG(); strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Error(svg)
	}
}

// contrast returns the ratio of the luminances of two colours, as WCAG defines it.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	luminance := func(colour string) (sum float64) {
		var rgb [3]uint8
		if _, err := fmt.Sscanf(colour, "#%02x%02x%02x", &rgb[0], &rgb[1], &rgb[2]); err != nil {
			t.Fatalf("%s: %v", colour, err)
		}
		for i, share := range []float64{0.2126, 0.7152, 0.0722} {
			v := float64(rgb[i]) / 255
			if v <= 0.04045 {
				v /= 12.92
			} else {
				v = math.Pow((v+0.055)/1.055, 2.4)
			}
			sum += share * v
		}
		return sum + 0.05
	}
	x, y := luminance(a), luminance(b)
	return max(x, y) / min(x, y)
}

// TestChart_IsReadableInBothThemes checks the ratios that WCAG wants: 4.5 for text, 3 for lines.
func TestChart_IsReadableInBothThemes(t *testing.T) {
	t.Parallel()
	for ground, ink := range map[string]string{"#ffffff": inkOnLight, "#0e1116": inkOnDark} {
		if ratio := contrast(t, ink, ground); ratio < 4.5 {
			t.Errorf("text on %s: contrast %.1f, want 4.5", ground, ratio)
		}
		for _, c := range colours {
			if ratio := contrast(t, c, ground); ratio < 3 {
				t.Errorf("line %s on %s: contrast %.1f, want 3", c, ground, ratio)
			}
		}
	}
	svg := Chart{Series: []Series{{Points: []Point{{1, 1}}}}}.SVG()
	if !strings.Contains(svg, "prefers-color-scheme:dark") || !strings.Contains(svg, `fill="currentColor"`) {
		t.Errorf("the text does not follow the theme:\n%s", svg)
	}
}

// TestChart_DrawsTheFirstSeriesOnTop checks that no other line hides the first.
func TestChart_DrawsTheFirstSeriesOnTop(t *testing.T) {
	t.Parallel()
	same := []Point{{1, 1}, {2, 1}}
	c := Chart{Series: []Series{{Name: "ours", Points: same}, {Name: "theirs", Points: same}}}
	svg := c.SVG()
	line := func(series int) int { return strings.Index(svg, `fill="none" stroke="`+c.colour(series)+`"`) }
	if ours, theirs := line(0), line(1); theirs < 0 || ours < theirs {
		t.Errorf("the first series is not drawn last:\n%s", svg)
	}
}

func TestCount_GroupsDigits(t *testing.T) {
	t.Parallel()
	if s := Count(1234567.4); s != "1,234,567" {
		t.Errorf("Count returns %s", s)
	}
}
