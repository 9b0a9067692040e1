package plot

import (
	"encoding/xml"
	"errors"
	"io"
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

func TestCount_GroupsDigits(t *testing.T) {
	t.Parallel()
	if s := Count(1234567.4); s != "1,234,567" {
		t.Errorf("Count returns %s", s)
	}
}
