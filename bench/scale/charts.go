package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/sema-go/sema/bench/plot"
	"github.com/sema-go/sema/fleet/protocol"
)

// charts returns the plots of docs/scale.md.
func (r *results) charts() []plot.Chart {
	return []plot.Chart{r.sizesChart(), r.holdsChart(), r.delayChart(), r.quantumChart(), r.fairnessChart(), r.peakChart(), r.partitionChart()}
}

func writePlots(directory string, charts []plot.Chart) error {
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

// curve returns the series of a value over several worlds.
func curve(name string, worlds []*world, x, y func(w *world) float64) plot.Series {
	s := plot.Series{Name: name}
	for _, w := range worlds {
		s.Points = append(s.Points, plot.Point{X: x(w), Y: y(w)})
	}
	return s
}

func (r *results) sizesChart() plot.Chart {
	size := func(w *world) float64 { return float64(w.p.instances) }
	naive := curve("naive: 2 per acquire", r.sizes, size, func(w *world) float64 { served, _ := w.served(); return 2 * w.perSecond(served) })
	naive.Dashed = true
	return plot.Chart{
		File: "instances.svg", Title: "Load of the stores", XLabel: "instances", YLabel: "batches per second", XLog: true, YLog: true,
		Series: []plot.Series{
			naive,
			curve("all regional stores", r.sizes, size, func(w *world) float64 { return w.perSecond(w.regional(batches)) }),
			curve("the global store", r.sizes, size, func(w *world) float64 { return w.perSecond(w.global.counts.batches) }),
		},
	}
}

func (r *results) holdsChart() plot.Chart {
	c := plot.Chart{
		File: "permits.svg", Title: "Pooling pays where an instance uses many permits", XLabel: "permits in use by an instance, on average",
		YLabel: "batches per acquire", XLog: true, YLog: true,
	}
	inUse := func(w *world) float64 { return w.p.rate * float64(w.p.hold) / float64(second) }
	naive := curve("naive", r.holds[0], inUse, func(*world) float64 { return 2 })
	naive.Dashed = true
	c.Series = append(c.Series, naive)
	for k, load := range r.holdLoads {
		c.Series = append(c.Series, curve(fmt.Sprintf("load %.2f", load), r.holds[k], inUse, (*world).batchesPerAcquire))
	}
	return c
}

func quantum(w *world) float64 { return float64(w.p.quantum) / float64(ms) }

func (r *results) delayChart() plot.Chart {
	return plot.Chart{
		File: "delay.svg", Title: "Recall delay, at 1.1 times the capacity", XLabel: "quantum (ms)", YLabel: "delay of waiters (ms)", XLog: true, YLog: true,
		Series: []plot.Series{
			curve("among regions, p50", r.quanta, quantum, func(w *world) float64 { return w.global.delays.quantile(0.5) }),
			curve("in a region, p99", r.quanta, quantum, func(w *world) float64 { return w.regionalDelays().quantile(0.99) }),
			curve("in a region, p50", r.quanta, quantum, func(w *world) float64 { return w.regionalDelays().quantile(0.5) }),
		},
	}
}

func (r *results) quantumChart() plot.Chart {
	return plot.Chart{
		File: "quantum.svg", Title: "Utilisation, at 1.1 times the capacity", XLabel: "quantum (ms)", YLabel: "utilisation (%)", XLog: true, YFrom: 80, YTo: 100,
		Series: []plot.Series{curve("in use / capacity", r.quanta, quantum, func(w *world) float64 { return 100 * w.utilisation() })},
	}
}

func (r *results) fairnessChart() plot.Chart {
	i := -1
	load := func(*world) float64 { i = (i + 1) % len(loads); return loads[i] }
	return plot.Chart{
		File: "fairness.svg", Title: "Fairness, with equal demand", XLabel: "demand / capacity", YLabel: "Jain's index; utilisation", YFrom: 0.4, YTo: 1.05,
		Series: []plot.Series{
			curve("fairness among instances", r.loads, load, func(w *world) float64 { instances, _ := w.fairness(); return instances }),
			curve("fairness among regions", r.loads, load, func(w *world) float64 { _, regions := w.fairness(); return regions }),
			curve("utilisation", r.loads, load, (*world).utilisation),
		},
	}
}

func (r *results) peakChart() plot.Chart {
	c := timeline(r.peak)
	c.File, c.Title = "crowd.svg", "A demand peak: the demand of region 1 triples"
	return c
}

func (r *results) partitionChart() plot.Chart {
	c := timeline(r.partition)
	c.File, c.Title = "partition.svg", "A partition: region 3 is cut off, the demand of the others doubles"
	return c
}

// timeline returns the chart of the permits in use, in each region and in
// total.
func timeline(w *world) plot.Chart {
	c := plot.Chart{XLabel: "time (s)", YLabel: "permits in use (thousands)", Area: true}
	capacity, all := plot.Series{Name: "capacity", Dashed: true}, plot.Series{Name: "all"}
	var each []plot.Series
	for i := range w.regions {
		each = append(each, plot.Series{Name: fmt.Sprintf("region %d", i+1)})
	}
	for _, m := range w.m.timeline {
		if m.at < w.p.warm {
			continue
		}
		at, sum := float64(m.at)/float64(second), 0.0
		for i, busy := range m.busy {
			each[i].Points = append(each[i].Points, plot.Point{X: at, Y: float64(busy) / 1000})
			sum += float64(busy) / 1000
		}
		all.Points = append(all.Points, plot.Point{X: at, Y: sum})
		capacity.Points = append(capacity.Points, plot.Point{X: at, Y: float64(w.p.capacity) / 1000})
	}
	c.Series = append([]plot.Series{capacity, all}, each...)
	c.YTo = float64(w.p.capacity) / 1000 * 1.1
	if len(w.p.faults) > 0 {
		c.Band = [2]float64{seconds(w.p.faults[0].from), seconds(w.p.faults[0].to)}
	}
	return c
}

func seconds(t protocol.Micros) float64 { return float64(t) / float64(second) }
