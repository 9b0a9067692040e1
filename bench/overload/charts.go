package overload

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sema-go/sema/bench/plot"
)

// The files of the plots.
const (
	goodputPlot  = "goodput.svg"
	latencyPlot  = "latency.svg"
	stepPlot     = "step.svg"
	slowdownPlot = "slowdown.svg"
)

// plotted are the implementations in plots. Those that are left out have the curves of one
// of these: chi and the bulkhead those of x/sync with a wait budget, for example.
var plotted = []string{
	Plain, CoDel, "x/sync, deadline only", "x/sync, wait budget", "failsafe adaptive limiter", "failsafe priority limiter", "bohde/codel", "aegis BBR",
}

// WritePlots writes the plots of the scenarios that ran into a directory.
func (s *Suite) WritePlots(directory string) error {
	var charts []plot.Chart
	if slices.ContainsFunc(s.all, func(r results) bool { return r.Name == steady(5) }) {
		charts = append(charts,
			s.loadChart(goodputPlot, "Goodput, of the capacity", "goodput / capacity", func(x row) float64 { return x.Goodput }),
			s.loadChart(latencyPlot, "p99 of admitted requests", "ms from arrival to end", func(x row) float64 { return ms(x.P99) }))
	}
	if r := s.find("step"); r != nil {
		charts = append(charts, r.timeline(stepPlot, "From 3 s to 6 s, ten times as many requests arrive"))
	}
	if r := s.find("slowdown"); r != nil {
		charts = append(charts, r.timeline(slowdownPlot, "From 3 s to 6 s, requests take four times as long"))
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	for _, c := range charts {
		if err := os.WriteFile(filepath.Join(directory, c.File), []byte(c.SVG()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// loadChart returns the chart of a value by offered load.
func (s *Suite) loadChart(file, title, label string, value func(row) float64) plot.Chart {
	c := plot.Chart{File: file, Title: title, XLabel: "offered load / capacity", YLabel: label}
	for _, name := range plotted {
		line := plot.Series{Name: name}
		for _, load := range loads {
			if r := s.find(steady(load)); r != nil {
				if x, ok := r.of(name); ok {
					line.Points = append(line.Points, plot.Point{X: load, Y: value(x)})
				}
			}
		}
		c.Series = append(c.Series, line)
	}
	return c
}

// timelineStep is the time between two points of a timeline.
const timelineStep = 200 * time.Millisecond

// timeline returns the chart of the goodput over time, by arrival, with the seed 1.
func (r *results) timeline(file, title string) plot.Chart {
	c := plot.Chart{
		File: file, Title: title, XLabel: "time of arrival (s)", YLabel: "goodput / capacity", Area: true,
		Band: [2]float64{changeFrom.Seconds(), changeTo.Seconds()}, YTo: 1.5,
	}
	buckets := int(timelineStep / bucketLength)
	for _, name := range plotted {
		x, ok := r.of(name)
		if !ok {
			continue
		}
		line := plot.Series{Name: name}
		for k, some := range slices.Collect(slices.Chunk(x.Timeline, buckets)) {
			sum := 0.0
			for _, b := range some {
				sum += b.Good
			}
			line.Points = append(line.Points, plot.Point{X: (time.Duration(k) * timelineStep).Seconds(), Y: sum / float64(len(some))})
		}
		c.Series = append(c.Series, line)
	}
	return c
}
