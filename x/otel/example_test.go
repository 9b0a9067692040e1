package otel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/x/otel"
)

// An acquire that waits is a span. One that does not wait costs no span.
func ExampleTrace() {
	spans := tracetest.NewInMemoryExporter()
	exporter, err := otel.New(otel.Trace(trace.NewTracerProvider(trace.WithSyncer(spans))))
	if err != nil {
		fmt.Println(err)
		return
	}
	db := sema.New(1, sema.Name("db"), sema.Observe(exporter))
	first, _ := db.Acquire(context.Background(), 1)
	go func() {
		for db.Stats().Waiters == 0 {
		}
		first.Release()
	}()
	second, _ := db.Acquire(context.Background(), 1)
	second.Release()
	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name, span.Attributes[len(span.Attributes)-1].Value.AsString())
	}
	// Output: sema.acquire acquired
}
