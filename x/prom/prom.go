// Package prom exports the state of gates to Prometheus: of all limits of a
// [registry.Registry], or of single gates.
//
//	metrics := prom.New()
//	limits := registry.New(registry.Each(sema.Observe(metrics)))
//	metrics.AddRegistry(limits)
//	prometheus.MustRegister(metrics)
//	http.Handle("/metrics", promhttp.Handler())
//
// Totals and gauges are read from the gates when Prometheus scrapes, and cost nothing
// before. The distributions of waits and holds need the collector as an observer, as above,
// or in the options of a gate: sema.Observe(metrics). Each wait is recorded, and the hold of
// one permit in 64. So a pair of Acquire and Release that does not wait costs about 4 ns
// more, and allocates nothing.
//
// docs/metrics.md lists the metrics, with alert rules and dashboards.
package prom

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/registry"
	"github.com/sema-go/sema/x/internal/measure"
)

// A Collector exports gates. It is a [prometheus.Collector], and a [sema.Sampler] and
// [sema.WaitObserver] that gates can send their events to. It is safe for concurrent use.
type Collector struct {
	*set
	described map[*measure.Desc]*prometheus.Desc
}

// set hides the methods of a measure.Set that are not part of this package.
type set struct{ *measure.Set }

var (
	_ prometheus.Collector = (*Collector)(nil)
	_ sema.Sampler         = (*Collector)(nil)
	_ sema.WaitObserver    = (*Collector)(nil)
)

// An Option configures [New].
type Option func(*options)

type options struct {
	measure.Config
	buckets []float64 // nil: defaultBuckets
	native  bool
}

// MaxNames sets how many names have series of their own without being registered. They are
// the names of gates that are only observed. Further names share the series "other", which
// sema_folded_total counts. Default 100. It panics if n is negative.
func MaxNames(n int) Option {
	return func(o *options) { o.Config.MaxNames = bound("MaxNames", n) }
}

// MaxClasses sets how many classes of each gate, such as tenants of a fair queue, have
// series of their own: those that are used first. Further classes share the series "other".
// Default 50. It panics if n is negative.
func MaxClasses(n int) Option {
	return func(o *options) { o.Config.MaxClasses = bound("MaxClasses", n) }
}

// bound returns a bound for a measure.Config, where 0 means the default.
func bound(option string, n int) int {
	switch {
	case n < 0:
		panic(fmt.Sprintf("prom: %s(%d): want 0 or more", option, n))
	case n == 0:
		return -1
	}
	return n
}

// Declare gives names and classes series of their own, whatever the bounds.
func Declare(names ...string) Option {
	return func(o *options) { o.Declared = append(o.Declared, names...) }
}

// HoldEvery sets of how many permits the hold of one is measured. Default 64. With 1, each
// pair reads the clock twice. It panics unless n is positive.
func HoldEvery(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("prom: HoldEvery(%d): want 1 or more", n))
	}
	return func(o *options) { o.Config.HoldEvery = n }
}

// Buckets sets the upper bounds of the classic buckets of distributions, in seconds.
// Default: 18 bounds from 100 µs to 10 min. Without arguments there are no classic buckets,
// only native ones. It panics unless the bounds ascend.
func Buckets(bounds ...float64) Option {
	if !slices.IsSorted(bounds) || len(slices.Compact(slices.Clone(bounds))) < len(bounds) {
		panic(fmt.Sprintf("prom: Buckets(%v): want ascending bounds", bounds))
	}
	return func(o *options) { o.buckets = append([]float64{}, bounds...) }
}

// ClassicOnly leaves out native histograms, for receivers that reject them.
func ClassicOnly() Option { return func(o *options) { o.native = false } }

var defaultBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30, 120, 600}

// New returns a collector without gates.
func New(opts ...Option) *Collector {
	o := options{buckets: defaultBuckets, native: true}
	for _, opt := range opts {
		opt(&o)
	}
	c := &Collector{described: map[*measure.Desc]*prometheus.Desc{}}
	for _, d := range measure.All() {
		c.described[d] = prometheus.NewDesc(d.Name, d.Help, d.LabelNames(), nil)
	}
	c.set = &set{measure.New(o.Config, func(s *measure.Series) measure.Recorder { return newRecorder(c, &o, s) })}
	return c
}

// AddRegistry exports the limits of a registry, present and future ones. Its name is the
// label semaphore.
func (c *Collector) AddRegistry(r *registry.Registry) { c.set.AddRegistry(r) }

// Add exports one gate under a name: a semaphore of any scope, a rate, a fair queue, a pool,
// a controller of admission, or a gate of your own with a method Stats as
// [registry.Registry.Add] wants it. A [github.com/sema-go/sema/group.Keyed] must be added
// under its own name; its keys are exported as classes. Add panics if the name or the gate
// was added before.
func (c *Collector) Add(name string, gate any) { c.set.Add(name, gate) }

// Remove ends the export of a gate that Add has added, and reports whether it was there.
func (c *Collector) Remove(name string) bool { return c.set.Remove(name) }

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range measure.All() {
		ch <- c.described[d]
	}
}

// Collect implements [prometheus.Collector]. It does no I/O.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.set.Collect(func(s measure.Sample) {
		kind := prometheus.GaugeValue
		if s.Desc.Kind == measure.Counter {
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(c.described[s.Desc], kind, s.Value, s.Values...)
	})
	for _, s := range c.set.Series() {
		s.Recorder.(*recorder).collect(ch)
	}
}
