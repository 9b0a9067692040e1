// Package plot draws the charts of the documentation.
package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Chart is a line chart as an SVG without a background. Its text has the colour of the
// reader's theme, light or dark; the lines are visible on both. The first series is the one
// that the chart is about: it is drawn over the others, with a wider line.
type Chart struct {
	File, Title    string
	XLabel, YLabel string
	XLog, YLog     bool
	YFrom, YTo     float64 // of a linear axis; 0, 0: from 0 to what the points need
	Area           bool    // many points: draw no marks
	Band           [2]float64
	Series         []Series
}

// A Series is a line of a chart.
type Series struct {
	Name   string
	Dashed bool
	Points []Point
}

// A Point is a point of a line.
type Point struct{ X, Y float64 }

const (
	width, height            = 760, 400
	left, right, top, bottom = 84, 24, 44, 92 // margins
	overhang                 = 12             // of the last label of the horizontal axis
	ink                      = "currentColor"
	inkOnLight, inkOnDark    = "#57606a", "#9da7b3"
)

// theme selects the colour of the text, and of the ground if the file is opened by itself. An
// image follows the theme of the page around it.
const theme = "<style>svg{color-scheme:light dark;color:" + inkOnLight + "}@media(prefers-color-scheme:dark){svg{color:" + inkOnDark + "}}</style>"

var colours = []string{"#2f81f7", "#e8590c", "#2da44e", "#c2559d", "#8957e5", "#b08000", "#1d8a92", "#d6353f"}

// colour returns the colour of a series. Dashed series are for comparison.
func (c Chart) colour(series int) string {
	if c.Series[series].Dashed {
		return ink
	}
	solid := 0
	for _, s := range c.Series[:series] {
		if !s.Dashed {
			solid++
		}
	}
	return colours[solid%len(colours)]
}

// SVG returns the chart as a file.
func (c Chart) SVG() string {
	var b strings.Builder
	_, rows := c.legendAt()
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="13" fill="%s" role="img">`+"\n", width+overhang, height+(rows-1)*legendRow, ink)
	fmt.Fprintf(&b, "<title>%s</title>%s\n", escape(c.Title), theme)
	fmt.Fprintf(&b, `<text x="%d" y="24" font-size="16" font-weight="600">%s</text>`+"\n", left, escape(c.Title))
	x, y := c.axes()
	if c.Band[1] > c.Band[0] {
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" fill-opacity="0.13"/>`+"\n",
			x.at(c.Band[0]), top, x.at(c.Band[1])-x.at(c.Band[0]), height-top-bottom, ink)
	}
	for _, tick := range y.ticks() {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="%s" stroke-opacity="0.25"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, y.at(tick), width-right, ink, left-8, y.at(tick)+4, label(tick))
	}
	for _, tick := range x.ticks() {
		fmt.Fprintf(&b, `<path d="M%.1f %dv5" stroke="%s"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x.at(tick), height-bottom, ink, x.at(tick), height-bottom+20, label(tick))
	}
	fmt.Fprintf(&b, `<path d="M%d %dV%dH%d" fill="none" stroke="%s"/>`+"\n", left, top, height-bottom, width-right, ink)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (left+width-right)/2, height-bottom+42, escape(c.XLabel))
	fmt.Fprintf(&b, `<text transform="translate(18 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+height-bottom)/2, escape(c.YLabel))
	for i, s := range slices.Backward(c.Series) {
		c.line(&b, s, c.colour(i), c.strokeWidth(i), x, y)
	}
	c.legend(&b)
	b.WriteString("</svg>\n")
	return b.String()
}

// strokeWidth returns the width of the line of a series.
func (c Chart) strokeWidth(series int) float64 {
	if series == 0 && len(c.Series) > 1 {
		return 3
	}
	return 2
}

// line draws one series.
func (c Chart) line(b *strings.Builder, s Series, colour string, wide float64, x, y axis) {
	dash := ""
	if s.Dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="%g" stroke-linejoin="round"%s d="`, colour, wide, dash)
	for i, p := range s.Points {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(b, "%s%.1f %.1f", verb, x.at(p.X), y.at(p.Y))
	}
	b.WriteString("\"/>\n")
	if c.Area || s.Dashed {
		return
	}
	for _, p := range s.Points {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%g" fill="%s"/>`+"\n", x.at(p.X), y.at(p.Y), wide+1.5, colour)
	}
}

// legendRow is the height of a row of the legend.
const legendRow = 20

// legendAt returns where the name of each series goes, and how many rows that takes.
func (c Chart) legendAt() (at [][2]int, rows int) {
	x, rows := left, 1
	for _, s := range c.Series {
		wide := 50 + 7*len(s.Name)
		if x > left && x+wide > width {
			x, rows = left, rows+1
		}
		at = append(at, [2]int{x, rows - 1})
		x += wide
	}
	return at, rows
}

// legend names the series below the plot.
func (c Chart) legend(b *strings.Builder) {
	at, _ := c.legendAt()
	for i, s := range c.Series {
		dash := ""
		if s.Dashed {
			dash = ` stroke-dasharray="6 4"`
		}
		x, y := at[i][0], height+at[i][1]*legendRow
		fmt.Fprintf(b, `<path d="M%d %dh22" stroke="%s" stroke-width="3"%s/><text x="%d" y="%d">%s</text>`+"\n",
			x, y-16, c.colour(i), dash, x+28, y-12, escape(s.Name))
	}
}

// An axis maps values to coordinates.
type axis struct {
	from, to   float64 // values
	start, end float64 // coordinates
	log        bool
}

func (c Chart) axes() (x, y axis) {
	x = axis{math.Inf(1), math.Inf(-1), left, width - right, c.XLog}
	y = axis{math.Inf(1), math.Inf(-1), height - bottom, top, c.YLog}
	for _, s := range c.Series {
		for _, p := range s.Points {
			x.from, x.to = min(x.from, p.X), max(x.to, p.X)
			if p.Y > 0 || !y.log { // a logarithmic axis has no 0
				y.from, y.to = min(y.from, p.Y), max(y.to, p.Y)
			}
		}
	}
	switch {
	case y.log:
		y.from = math.Pow(10, math.Floor(math.Log10(y.from)))
		y.to = math.Pow(10, math.Ceil(math.Log10(y.to)))
		if y.from == y.to {
			y.to *= 10
		}
	case c.YTo > 0:
		y.from, y.to = c.YFrom, c.YTo
	default:
		y.from, y.to = 0, y.to*1.05
	}
	return x, y
}

func (a axis) at(value float64) float64 {
	from, to := a.from, a.to
	if a.log {
		from, to, value = math.Log(from), math.Log(to), math.Log(max(value, from))
	}
	if to == from {
		return a.start
	}
	return a.start + (value-from)/(to-from)*(a.end-a.start)
}

// ticks returns round values: on a logarithmic axis the powers of ten and, if
// those are few, also 2 and 5 times these.
func (a axis) ticks() (ticks []float64) {
	if !a.log {
		step := math.Pow(10, math.Floor(math.Log10(a.to-a.from)))
		for _, finer := range []float64{2, 2.5, 2} { // 0.5, 0.2, 0.1
			if (a.to-a.from)/step >= 5 {
				break
			}
			step /= finer
		}
		for i := math.Ceil(a.from/step - 1e-9); i*step <= a.to*(1+1e-9); i++ {
			ticks = append(ticks, i*step+0) // +0 avoids -0
		}
		return ticks
	}
	factors := []float64{1}
	if a.to/a.from < 1001 {
		factors = []float64{1, 2, 5}
	}
	for power := math.Pow(10, math.Floor(math.Log10(a.from))); power <= a.to*1.001; power *= 10 {
		for _, factor := range factors {
			if tick := power * factor; tick >= a.from*0.999 && tick <= a.to*1.001 {
				ticks = append(ticks, tick)
			}
		}
	}
	return ticks
}

func label(value float64) string {
	if value >= 1000 {
		return Count(value)
	}
	return fmt.Sprintf("%.3g", value)
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// Count formats a whole number in groups of three digits.
func Count(x float64) string {
	digits := fmt.Sprintf("%.0f", x)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
