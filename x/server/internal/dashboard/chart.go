package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema/x/server/internal/history"
)

// charts shows the past of a semaphore: a choice of ranges, curves over one time axis, and what
// operators have done.
type charts struct {
	Ranges []rangeLink
	Curves []chart
	Ticks  []string // labels of the time axis, at equal distances
	Events []mark   // the latest first
}

type rangeLink struct {
	Name, URL string
	Current   bool
}

// A chart is a curve, with gaps for times without samples.
type chart struct {
	Label    string
	Now      string
	Peak     string
	Top      string // label of the upper edge
	Area     string
	Curve    string
	Limit    string // path of the effective capacity; "": none
	Points   string // "x:value" for each bin, for the pointer
	From, To int64  // times of the edges, in milliseconds since 1970
	Marks    []mark
	Span     time.Duration
}

// A mark is an event at a place of the time axis.
type mark struct {
	X    string // in the coordinates of the chart
	At   time.Time
	Text string
}

// The coordinate space of charts, which pages scale.
const (
	chartWidth  = 600.0
	chartHeight = 100.0
	// chartBins is the number of points of a curve. Each is the highest value of its time.
	chartBins = 180
	// mostMarks bounds the events that are shown.
	mostMarks = 40
)

// A bin is the highest value of a part of the time axis.
type bin struct {
	known        bool
	value, limit float64
}

// newCharts returns charts of a time range that ends now. The edges move by whole bins, so that
// most of a page stays the same.
func newCharts(url string, curve history.Curve, events []history.Event, now time.Time, span time.Duration) charts {
	width := span / chartBins
	end := now.Truncate(width).Add(width)
	begin := end.Add(-span)
	all := charts{Curves: []chart{
		newChart("In use", curve, begin, width, wholes, func(p history.Point) (float64, float64) { return float64(p.InUse), float64(p.Effective) }),
		newChart("Waiting", curve, begin, width, wholes, func(p history.Point) (float64, float64) { return float64(p.Waiting), -1 }),
		newChart("Wait p99 (dashed: p50)", curve, begin, width, spans, func(p history.Point) (float64, float64) { return p.WaitP99.Seconds(), p.WaitP50.Seconds() }),
		newChart("Hold p99 (dashed: p50)", curve, begin, width, spans, func(p history.Point) (float64, float64) { return p.HoldP99.Seconds(), p.HoldP50.Seconds() }),
	}}
	for _, r := range ranges {
		all.Ranges = append(all.Ranges, rangeLink{r.Name, url + "&range=" + r.Name, r.Span == span})
	}
	all.Ticks = timeTicks(begin, span)
	for _, e := range slices.Backward(events) {
		if len(all.Events) == mostMarks {
			break
		}
		at := e.At.Sub(begin)
		if at < 0 || at > span {
			continue
		}
		text := e.Kind
		if e.By != "" {
			text += " by " + e.By
		}
		if e.Detail != "" {
			text += ": " + e.Detail
		}
		all.Events = append(all.Events, mark{fmt.Sprintf("%.1f", chartWidth*at.Seconds()/span.Seconds()), e.At, text})
	}
	for i := range all.Curves {
		all.Curves[i].Marks = all.Events
	}
	return all
}

// timeTicks returns labels of a time axis, at equal distances.
func timeTicks(begin time.Time, span time.Duration) (labels []string) {
	const ticks = 5
	for i := range ticks {
		labels = append(labels, begin.Add(span*time.Duration(i)/(ticks-1)).Format("15:04"))
	}
	return labels
}

func wholes(v float64) string { return count(int64(v)) }

func spans(v float64) string {
	if v == 0 {
		return "0s"
	}
	return Brief(time.Duration(v * float64(time.Second)))
}

func newChart(label string, curve history.Curve, begin time.Time, width time.Duration, text func(float64) string, value func(history.Point) (v, limit float64)) chart {
	c := chart{Label: label, From: begin.UnixMilli(), To: begin.Add(chartBins * width).UnixMilli(), Span: chartBins * width}
	bins := make([]bin, chartBins)
	var top, peak float64
	for _, p := range curve.Points {
		i := int(p.At.Sub(begin) / width)
		if p.At.Before(begin) || i >= chartBins {
			continue
		}
		v, limit := value(p)
		bins[i] = bin{true, max(bins[i].value, v), limit}
		peak, top = max(peak, v), max(top, v, limit)
		c.Now = text(v)
	}
	// A bin is shorter than the interval of samples: its value is that of the last sample.
	for i, hold := 1, 0; i < chartBins; i++ {
		if bins[i].known {
			hold = 0
		} else if hold++; bins[i-1].known && time.Duration(hold)*width < 3*curve.Step {
			bins[i] = bins[i-1]
		}
	}
	if top == 0 {
		top = 1
	}
	c.Peak, c.Top = text(peak), text(top)
	c.draw(bins, top, text)
	return c
}

// draw sets the paths through the bins, and the values for the pointer.
func (c *chart) draw(bins []bin, top float64, text func(float64) string) {
	var line, below, limit, points strings.Builder
	const step = chartWidth / chartBins
	y := func(v float64) float64 { return chartHeight * (1 - v/top) }
	for i, b := range bins {
		x := float64(i) * step
		if !b.known {
			continue
		}
		begins := i == 0 || !bins[i-1].known
		ends := i == len(bins)-1 || !bins[i+1].known
		if begins {
			fmt.Fprintf(&line, "M%.1f %.1f", x, y(b.value))
			fmt.Fprintf(&below, "M%.1f %.0fV%.1f", x, chartHeight, y(b.value))
		} else if b.value != bins[i-1].value {
			fmt.Fprintf(&line, "H%.1fV%.1f", x, y(b.value))
			fmt.Fprintf(&below, "H%.1fV%.1f", x, y(b.value))
		}
		if b.limit >= 0 && (begins || b.limit != bins[i-1].limit) {
			if begins {
				fmt.Fprintf(&limit, "M%.1f %.1f", x, y(b.limit))
			} else {
				fmt.Fprintf(&limit, "H%.1fV%.1f", x, y(b.limit))
			}
		}
		if begins || b.value != bins[i-1].value {
			fmt.Fprintf(&points, "%d:%s;", i, text(b.value))
		}
		if ends {
			fmt.Fprintf(&line, "H%.1f", x+step)
			fmt.Fprintf(&below, "H%.1fV%.0fZ", x+step, chartHeight)
			if b.limit >= 0 {
				fmt.Fprintf(&limit, "H%.1f", x+step)
			}
			fmt.Fprintf(&points, "%d:;", i+1)
		}
	}
	c.Curve, c.Area, c.Limit, c.Points = line.String(), below.String(), limit.String(), points.String()
}

// Text describes the chart for screen readers.
func (c chart) Text() string {
	if c.Curve == "" {
		return fmt.Sprintf("%s: no samples in the last %s", c.Label, age(c.Span))
	}
	return fmt.Sprintf("%s: now %s, at most %s in the last %s", c.Label, c.Now, c.Peak, age(c.Span))
}
