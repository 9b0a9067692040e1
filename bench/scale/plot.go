package main

import (
	"fmt"
	"math"
	"strings"
)

// A chart is a line chart as an SVG without a background. Its colours are
// readable on white and on black.
type chart struct {
	file, title    string
	xLabel, yLabel string
	xLog, yLog     bool
	yFrom, yTo     float64 // of a linear axis; 0, 0: from 0 to what the points need
	area           bool    // many points: draw no marks
	band           [2]float64
	series         []series
}

type series struct {
	name   string
	dashed bool
	points []point
}

type point struct{ x, y float64 }

const (
	width, height            = 760, 400
	left, right, top, bottom = 84, 24, 44, 92 // margins
	ink                      = "#7d8590"
)

var colours = []string{"#2f81f7", "#e8590c", "#2da44e", "#c2559d"}

// colour returns the colour of a series. Dashed series are for comparison.
func (c chart) colour(series int) string {
	if c.series[series].dashed {
		return ink
	}
	solid := 0
	for _, s := range c.series[:series] {
		if !s.dashed {
			solid++
		}
	}
	return colours[solid%len(colours)]
}

func (c chart) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="13" fill="%s" role="img">`+"\n", width, height, ink)
	fmt.Fprintf(&b, "<title>%s</title>\n", escape(c.title))
	fmt.Fprintf(&b, `<text x="%d" y="24" font-size="16" font-weight="600">%s</text>`+"\n", left, escape(c.title))
	x, y := c.axes()
	if c.band[1] > c.band[0] {
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" fill-opacity="0.13"/>`+"\n",
			x.at(c.band[0]), top, x.at(c.band[1])-x.at(c.band[0]), height-top-bottom, ink)
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
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (left+width-right)/2, height-bottom+42, escape(c.xLabel))
	fmt.Fprintf(&b, `<text transform="translate(18 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+height-bottom)/2, escape(c.yLabel))
	for i, s := range c.series {
		c.line(&b, s, c.colour(i), x, y)
	}
	c.legend(&b)
	b.WriteString("</svg>\n")
	return b.String()
}

// line draws one series.
func (c chart) line(b *strings.Builder, s series, colour string, x, y axis) {
	dash := ""
	if s.dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="2" stroke-linejoin="round"%s d="`, colour, dash)
	for i, p := range s.points {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(b, "%s%.1f %.1f", verb, x.at(p.x), y.at(p.y))
	}
	b.WriteString("\"/>\n")
	if c.area || s.dashed {
		return
	}
	for _, p := range s.points {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x.at(p.x), y.at(p.y), colour)
	}
}

// legend names the series below the plot.
func (c chart) legend(b *strings.Builder) {
	at := left
	for i, s := range c.series {
		dash := ""
		if s.dashed {
			dash = ` stroke-dasharray="6 4"`
		}
		fmt.Fprintf(b, `<path d="M%d %dh22" stroke="%s" stroke-width="3"%s/><text x="%d" y="%d">%s</text>`+"\n",
			at, height-16, c.colour(i), dash, at+28, height-12, escape(s.name))
		at += 50 + 7*len(s.name)
	}
}

// An axis maps values to coordinates.
type axis struct {
	from, to   float64 // values
	start, end float64 // coordinates
	log        bool
}

func (c chart) axes() (x, y axis) {
	x = axis{math.Inf(1), math.Inf(-1), left, width - right, c.xLog}
	y = axis{math.Inf(1), math.Inf(-1), height - bottom, top, c.yLog}
	for _, s := range c.series {
		for _, p := range s.points {
			x.from, x.to = min(x.from, p.x), max(x.to, p.x)
			if p.y > 0 || !y.log { // a logarithmic axis has no 0
				y.from, y.to = min(y.from, p.y), max(y.to, p.y)
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
	case c.yTo > 0:
		y.from, y.to = c.yFrom, c.yTo
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
		return count(value)
	}
	return fmt.Sprintf("%.3g", value)
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
