package dashboard

import (
	"fmt"
	"strings"
	"time"
)

// historySpan is the time range of the charts.
const historySpan = 5 * time.Minute

// A history holds samples of a semaphore's recent state, from the times it was watched.
type history struct{ samples []sample }

type sample struct {
	at                        time.Time
	inUse, effective, waiting int64
}

// add appends a sample, or replaces the last one if that is less than half an interval older:
// pages that are loaded at the same time add one sample.
func (h *history) add(s sample) {
	if n := len(h.samples); n > 0 && s.at.Sub(h.samples[n-1].at) < every/2 {
		h.samples[n-1] = s
		return
	}
	h.samples = append(h.samples, s)
}

// forget removes samples before a time. It reports whether none is left.
func (h *history) forget(before time.Time) bool {
	old := 0
	for old < len(h.samples) && h.samples[old].at.Before(before) {
		old++
	}
	if old > 0 {
		h.samples = append([]sample(nil), h.samples[old:]...)
	}
	return len(h.samples) == 0
}

// A chart is a curve over the last minutes, with gaps for times when the semaphore was not
// watched.
type chart struct {
	Label string
	Now   int64
	Peak  int64
	Top   int64 // value at the upper edge
	Area  string
	Curve string
	Limit string        // path of the effective capacity; "": none
	Span  time.Duration // time from the left edge to now
	Since time.Time
}

// The coordinate space of charts, which pages scale.
const (
	chartWidth  = 600.0
	chartHeight = 100.0
)

// gap is the longest possible time between two consecutive reads.
const gap = 2*every + timeout

// chartsOf returns charts of the permits in use and of the waiters, up to now. The time range
// starts with a minute, so that a new viewer soon sees a curve.
func chartsOf(samples []sample, now time.Time) (all []chart) {
	inUse := func(s sample) int64 { return s.inUse }
	effective := func(s sample) int64 { return s.effective }
	waiting := func(s sample) int64 { return s.waiting }
	shown := time.Minute
	if len(samples) > 0 {
		shown = min(historySpan, max(shown, now.Sub(samples[0].at).Truncate(time.Minute)+time.Minute))
	}
	use := chart{Label: "In use", Span: shown, Top: max(1, highest(samples, inUse), highest(samples, effective))}
	use.draw(samples, now, inUse)
	use.Limit, _ = curve(samples, now, shown, use.Top, effective)
	queue := chart{Label: "Waiting", Span: shown, Top: max(1, highest(samples, waiting))}
	queue.draw(samples, now, waiting)
	return []chart{use, queue}
}

func (c *chart) draw(samples []sample, now time.Time, value func(sample) int64) {
	c.Peak = highest(samples, value)
	c.Curve, c.Area = curve(samples, now, c.Span, c.Top, value)
	if n := len(samples); n > 0 {
		c.Now, c.Since = value(samples[n-1]), samples[0].at
	}
}

// Text describes the chart for screen readers.
func (c chart) Text() string {
	return fmt.Sprintf("%s: now %s, at most %s in the last %s", c.Label, count(c.Now), count(c.Peak), age(c.Span))
}

func highest(samples []sample, value func(sample) int64) (top int64) {
	for _, s := range samples {
		top = max(top, value(s))
	}
	return top
}

// curve returns an SVG path through the samples, and the area below it. The path has steps,
// because the number of permits changes in steps.
func curve(samples []sample, now time.Time, shown time.Duration, top int64, value func(sample) int64) (path, area string) {
	var line, below strings.Builder
	x := func(at time.Time) float64 {
		return chartWidth * (1 - min(1, max(0, now.Sub(at).Seconds()/shown.Seconds())))
	}
	y := func(s sample) float64 { return chartHeight * (1 - float64(value(s))/float64(top)) }
	for i, s := range samples {
		begins := i == 0 || s.at.Sub(samples[i-1].at) > gap
		ends := i == len(samples)-1 || samples[i+1].at.Sub(s.at) > gap
		switch {
		case begins:
			fmt.Fprintf(&line, "M%.1f %.1f", x(s.at), y(s))
			fmt.Fprintf(&below, "M%.1f %.0fV%.1f", x(s.at), chartHeight, y(s))
		case ends || value(s) != value(samples[i-1]):
			fmt.Fprintf(&line, "H%.1fV%.1f", x(s.at), y(s))
			fmt.Fprintf(&below, "H%.1fV%.1f", x(s.at), y(s))
		}
		if ends {
			fmt.Fprintf(&line, "h1.5")
			fmt.Fprintf(&below, "h1.5V%.0fZ", chartHeight)
		}
	}
	return line.String(), below.String()
}
