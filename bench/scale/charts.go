package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/sema-go/sema/fleet/protocol"
)

// charts returns the plots of docs/scale.md.
func (r *results) charts() []chart {
	return []chart{r.sizesChart(), r.holdsChart(), r.delayChart(), r.quantumChart(), r.fairnessChart(), r.peakChart(), r.partitionChart()}
}

func writePlots(directory string, charts []chart) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	for _, c := range charts {
		if err := os.WriteFile(filepath.Join(directory, c.file), []byte(c.svg()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// curve returns the series of a value over several worlds.
func curve(name string, worlds []*world, x, y func(w *world) float64) series {
	s := series{name: name}
	for _, w := range worlds {
		s.points = append(s.points, point{x(w), y(w)})
	}
	return s
}

func (r *results) sizesChart() chart {
	size := func(w *world) float64 { return float64(w.p.instances) }
	naive := curve("naive: 2 per acquire", r.sizes, size, func(w *world) float64 { served, _ := w.served(); return 2 * w.perSecond(served) })
	naive.dashed = true
	return chart{
		file: "instances.svg", title: "Load of the stores", xLabel: "instances", yLabel: "batches per second", xLog: true, yLog: true,
		series: []series{
			naive,
			curve("all regional stores", r.sizes, size, func(w *world) float64 { return w.perSecond(w.regional(batches)) }),
			curve("the global store", r.sizes, size, func(w *world) float64 { return w.perSecond(w.global.counts.batches) }),
		},
	}
}

func (r *results) holdsChart() chart {
	c := chart{
		file: "permits.svg", title: "Pooling pays where an instance uses many permits", xLabel: "permits in use by an instance, on average",
		yLabel: "batches per acquire", xLog: true, yLog: true,
	}
	inUse := func(w *world) float64 { return w.p.rate * float64(w.p.hold) / float64(second) }
	naive := curve("naive", r.holds[0], inUse, func(*world) float64 { return 2 })
	naive.dashed = true
	c.series = append(c.series, naive)
	for k, load := range r.holdLoads {
		c.series = append(c.series, curve(fmt.Sprintf("load %.2f", load), r.holds[k], inUse, (*world).batchesPerAcquire))
	}
	return c
}

func quantum(w *world) float64 { return float64(w.p.quantum) / float64(ms) }

func (r *results) delayChart() chart {
	return chart{
		file: "delay.svg", title: "Recall delay, at 1.1 times the capacity", xLabel: "quantum (ms)", yLabel: "delay of waiters (ms)", xLog: true, yLog: true,
		series: []series{
			curve("among regions, p50", r.quanta, quantum, func(w *world) float64 { return w.global.delays.quantile(0.5) }),
			curve("in a region, p99", r.quanta, quantum, func(w *world) float64 { return w.regionalDelays().quantile(0.99) }),
			curve("in a region, p50", r.quanta, quantum, func(w *world) float64 { return w.regionalDelays().quantile(0.5) }),
		},
	}
}

func (r *results) quantumChart() chart {
	return chart{
		file: "quantum.svg", title: "Utilisation, at 1.1 times the capacity", xLabel: "quantum (ms)", yLabel: "utilisation (%)", xLog: true, yFrom: 80, yTo: 100,
		series: []series{curve("in use / capacity", r.quanta, quantum, func(w *world) float64 { return 100 * w.utilisation() })},
	}
}

func (r *results) fairnessChart() chart {
	i := -1
	load := func(*world) float64 { i = (i + 1) % len(loads); return loads[i] }
	return chart{
		file: "fairness.svg", title: "Fairness, with equal demand", xLabel: "demand / capacity", yLabel: "Jain's index; utilisation", yFrom: 0.4, yTo: 1.05,
		series: []series{
			curve("fairness among instances", r.loads, load, func(w *world) float64 { instances, _ := w.fairness(); return instances }),
			curve("fairness among regions", r.loads, load, func(w *world) float64 { _, regions := w.fairness(); return regions }),
			curve("utilisation", r.loads, load, (*world).utilisation),
		},
	}
}

func (r *results) peakChart() chart {
	c := timeline(r.peak)
	c.file, c.title = "crowd.svg", "A demand peak: the demand of region 1 triples"
	return c
}

func (r *results) partitionChart() chart {
	c := timeline(r.partition)
	c.file, c.title = "partition.svg", "A partition: region 3 is cut off, the demand of the others doubles"
	return c
}

// timeline returns the chart of the permits in use, in each region and in
// total.
func timeline(w *world) chart {
	c := chart{xLabel: "time (s)", yLabel: "permits in use (thousands)", area: true}
	capacity, all := series{name: "capacity", dashed: true}, series{name: "all"}
	var each []series
	for i := range w.regions {
		each = append(each, series{name: fmt.Sprintf("region %d", i+1)})
	}
	for _, m := range w.m.timeline {
		if m.at < w.p.warm {
			continue
		}
		at, sum := float64(m.at)/float64(second), 0.0
		for i, busy := range m.busy {
			each[i].points = append(each[i].points, point{at, float64(busy) / 1000})
			sum += float64(busy) / 1000
		}
		all.points = append(all.points, point{at, sum})
		capacity.points = append(capacity.points, point{at, float64(w.p.capacity) / 1000})
	}
	c.series = append([]series{capacity, all}, each...)
	c.yTo = float64(w.p.capacity) / 1000 * 1.1
	if len(w.p.faults) > 0 {
		c.band = [2]float64{seconds(w.p.faults[0].from), seconds(w.p.faults[0].to)}
	}
	return c
}

func seconds(t protocol.Micros) float64 { return float64(t) / float64(second) }
