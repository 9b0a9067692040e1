package otel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/x/internal/measure"
)

// A recorder records the distributions of a series, with attributes that are built once.
type recorder struct {
	exporter *Exporter
	waits    map[string]metric.MeasurementOption // by result
	class    metric.MeasurementOption            // nil: of the whole gate
	hold     metric.MeasurementOption
	db       metric.MeasurementOption // nil: not a pool of connections
}

func (e *Exporter) newRecorder(s *measure.Series) measure.Recorder {
	values := []string{s.Backend, s.Semaphore}
	r := &recorder{exporter: e, waits: map[string]metric.MeasurementOption{}, hold: metric.WithAttributeSet(attributesOf(measure.Hold, values))}
	if s.Class != "" {
		r.class = metric.WithAttributeSet(attributesOf(measure.ClassWait, append(values, s.Class)))
		return r
	}
	for _, result := range measure.Results() {
		r.waits[result] = metric.WithAttributeSet(attributesOf(measure.AcquireWait, []string{s.Backend, s.Semaphore, result}))
	}
	if e.connections != nil && e.connections.names[s.Semaphore] {
		r.db = metric.WithAttributeSet(attribute.NewSet(poolName.String(s.Semaphore)))
	}
	return r
}

// Waited implements [measure.Recorder].
func (r *recorder) Waited(result string, seconds float64) {
	ctx := context.Background()
	switch {
	case r.class == nil:
		r.exporter.distribution[measure.AcquireWait].Record(ctx, seconds, r.waits[result])
	case result == measure.Acquired:
		r.exporter.distribution[measure.ClassWait].Record(ctx, seconds, r.class)
	}
	if r.db != nil && result == measure.Acquired {
		r.exporter.connections.waitTime.Record(ctx, seconds, r.db)
	}
}

// Held implements [measure.Recorder].
func (r *recorder) Held(seconds float64) {
	if r.class != nil {
		return
	}
	ctx := context.Background()
	r.exporter.distribution[measure.Hold].Record(ctx, seconds, r.hold)
	if r.db != nil {
		r.exporter.connections.useTime.Record(ctx, seconds, r.db)
	}
}

// ObserveWait implements [sema.WaitObserver]: it starts a span that ends with the wait.
func (e *Exporter) ObserveWait(ctx context.Context, queued sema.Event) func(sema.Event) {
	unlist := e.set.ObserveWait(ctx, queued)
	if e.tracer == nil {
		return unlist
	}
	attributes := []attribute.KeyValue{
		attribute.String("semaphore", queued.Name), attribute.Int64("weight", queued.Weight), attribute.Int("waiters", queued.Waiters),
	}
	if queued.Class != "" {
		attributes = append(attributes, attribute.String("class", queued.Class))
	}
	_, span := e.tracer.Start(ctx, "sema.acquire", trace.WithAttributes(attributes...))
	return func(ended sema.Event) {
		unlist(ended)
		result := measure.ResultOf(&ended)
		span.SetAttributes(attribute.String("outcome", result))
		if result != measure.Acquired {
			span.SetStatus(codes.Error, sema.Reason(ended.Err))
		}
		span.End()
	}
}
