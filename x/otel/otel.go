// Package otel exports the state of gates through OpenTelemetry, and makes a span of each
// acquire that waits. It reads what package prom of this module reads, and gives it the same
// names with dots: sema_permits_in_use is sema.permits_in_use.
//
//	metrics, err := otel.New(otel.Trace(tracerProvider))
//	limits := registry.New(registry.Each(sema.Observe(metrics)))
//	metrics.AddRegistry(limits)
//
// Totals and gauges are read from the gates at each collection. The distributions of waits
// and holds, and the spans, need the exporter as an observer, as above or in the options of a
// gate. Each wait is recorded, and the hold of one permit in 64. An acquire that does not wait
// makes no span, and reads no clock.
//
// Unlike in package prom, sema.acquire_wait contains only acquires that waited.
package otel

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/registry"
	"github.com/sema-go/sema/x/internal/measure"
)

// scope is the name of the meter and the tracer.
const scope = "github.com/sema-go/sema/x/otel"

// An Exporter exports gates. It is a [sema.Sampler] and a [sema.WaitObserver] that gates can
// send their events to. It is safe for concurrent use.
type Exporter struct {
	*set
	tracer       trace.Tracer // nil: no spans
	instruments  map[*measure.Desc]metric.Float64Observable
	connections  *connections // nil: none
	distribution map[*measure.Desc]metric.Float64Histogram
	registration metric.Registration
}

// set hides the methods of a measure.Set that are not part of this package.
type set struct{ *measure.Set }

var (
	_ sema.Sampler      = (*Exporter)(nil)
	_ sema.WaitObserver = (*Exporter)(nil)
)

// An Option configures [New].
type Option func(*options)

type options struct {
	measure.Config
	meters      metric.MeterProvider // nil: the global one
	tracers     trace.TracerProvider // nil: no spans
	connections []string
}

// Meters sets where metrics go. Default: the global meter provider.
func Meters(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// Trace makes a span of each acquire that waits, as a child of the span of its context. The
// span has the attributes semaphore, class, weight, waiters, and outcome="acquired",
// "timeout", "canceled", "rejected" or "error". Without this option there are no spans.
func Trace(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// Connections exports pools of database connections, or other gates for them, also by the
// semantic conventions: as db.client.connection.count, .max, .pending_requests, .timeouts,
// .wait_time and .use_time. The names are those of the gates.
func Connections(names ...string) Option {
	return func(o *options) { o.connections = append(o.connections, names...) }
}

// MaxNames sets how many names have series of their own without being registered. Further
// names share the series "other". Default 100. It panics if n is negative.
func MaxNames(n int) Option {
	return func(o *options) { o.Config.MaxNames = bound("MaxNames", n) }
}

// MaxClasses sets how many classes of each gate have series of their own: those that are
// used first. Further classes share the series "other". Default 50. It panics if n is
// negative.
func MaxClasses(n int) Option {
	return func(o *options) { o.Config.MaxClasses = bound("MaxClasses", n) }
}

// bound returns a bound for a measure.Config, where 0 means the default.
func bound(option string, n int) int {
	switch {
	case n < 0:
		panic(fmt.Sprintf("otel: %s(%d): want 0 or more", option, n))
	case n == 0:
		return -1
	}
	return n
}

// Declare gives names and classes series of their own, whatever the bounds.
func Declare(names ...string) Option {
	return func(o *options) { o.Declared = append(o.Declared, names...) }
}

// HoldEvery sets of how many permits the hold of one is measured. Default 64. It panics
// unless n is positive.
func HoldEvery(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("otel: HoldEvery(%d): want 1 or more", n))
	}
	return func(o *options) { o.Config.HoldEvery = n }
}

// New returns an exporter without gates, and registers its instruments.
func New(opts ...Option) (*Exporter, error) {
	o := options{meters: otel.GetMeterProvider()}
	for _, opt := range opts {
		opt(&o)
	}
	e := &Exporter{instruments: map[*measure.Desc]metric.Float64Observable{}, distribution: map[*measure.Desc]metric.Float64Histogram{}}
	e.set = &set{measure.New(o.Config, e.newRecorder)}
	if o.tracers != nil {
		e.tracer = o.tracers.Tracer(scope)
	}
	if err := e.register(o.meters.Meter(scope), o.connections); err != nil {
		return nil, fmt.Errorf("register instruments: %w", err)
	}
	return e, nil
}

// AddRegistry exports the limits of a registry, present and future ones. Its name is the
// attribute semaphore.
func (e *Exporter) AddRegistry(r *registry.Registry) { e.set.AddRegistry(r) }

// Add exports one gate under a name: a semaphore of any scope, a rate, a fair queue, a pool,
// a controller of admission, or a gate of your own with a method Stats as
// [registry.Registry.Add] wants it. A [github.com/sema-go/sema/group.Keyed] must be added
// under its own name; its keys are exported as classes. Add panics if the name or the gate
// was added before.
func (e *Exporter) Add(name string, gate any) { e.set.Add(name, gate) }

// Remove ends the export of a gate that Add has added, and reports whether it was there.
func (e *Exporter) Remove(name string) bool { return e.set.Remove(name) }

// Close ends the export of metrics. Spans go on.
func (e *Exporter) Close() error { return e.registration.Unregister() }

// instrumentName returns the name of a metric in OpenTelemetry, without the unit and the
// suffix of counters, which a conversion to Prometheus adds again.
func instrumentName(d *measure.Desc) string {
	name := strings.TrimSuffix(d.Name, "_total")
	for _, unit := range []string{"_per_second", "_seconds"} {
		name = strings.TrimSuffix(name, unit)
	}
	return strings.Replace(name, "sema_", "sema.", 1)
}

// unitOf returns the unit of a metric. Unit 1 stands for a ratio.
func unitOf(d *measure.Desc) string {
	if d.Unit == "1" {
		return ""
	}
	return d.Unit
}

// secondBounds are the bounds of the buckets of durations, in seconds.
var secondBounds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30, 120, 600}

// register creates the instruments, and the callback that reads the gates.
func (e *Exporter) register(m metric.Meter, connections []string) error {
	var observed []metric.Observable
	for _, d := range measure.All() {
		name, unit, about := instrumentName(d), metric.WithUnit(unitOf(d)), metric.WithDescription(d.Help)
		var err error
		switch d.Kind {
		case measure.Histogram:
			e.distribution[d], err = m.Float64Histogram(name, unit, about, metric.WithExplicitBucketBoundaries(secondBounds...))
		case measure.Counter:
			e.instruments[d], err = m.Float64ObservableCounter(name, unit, about)
		default:
			e.instruments[d], err = m.Float64ObservableGauge(name, unit, about)
		}
		if err != nil {
			return err
		}
		if i := e.instruments[d]; i != nil {
			observed = append(observed, i)
		}
	}
	if len(connections) > 0 {
		c, err := newConnections(m, connections)
		if err != nil {
			return err
		}
		e.connections = c
		observed = append(observed, c.observed...)
	}
	var err error
	e.registration, err = m.RegisterCallback(e.collect, observed...)
	return err
}

// collect reads the gates. It does no I/O.
func (e *Exporter) collect(_ context.Context, o metric.Observer) error {
	var pending map[string]float64
	if e.connections != nil {
		pending = map[string]float64{}
	}
	e.set.Collect(func(s measure.Sample) {
		o.ObserveFloat64(e.instruments[s.Desc], s.Value, metric.WithAttributeSet(attributesOf(s.Desc, s.Values)))
		if e.connections != nil {
			e.connections.observe(o, &s, pending)
		}
	})
	if e.connections != nil {
		e.connections.observePending(o, pending)
	}
	return nil
}

func attributesOf(d *measure.Desc, values []string) attribute.Set {
	list := make([]attribute.KeyValue, 0, len(values))
	for i, name := range d.LabelNames() {
		list = append(list, attribute.String(name, values[i]))
	}
	return attribute.NewSet(list...)
}
