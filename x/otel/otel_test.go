package otel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/registry"
	"github.com/sema-go/sema/wfq"
	"github.com/sema-go/sema/x/otel"
)

// newExporter returns an exporter and the reader of its metrics.
func newExporter(t *testing.T, opts ...otel.Option) (*otel.Exporter, *metric.ManualReader) {
	t.Helper()
	reader := metric.NewManualReader()
	e, err := otel.New(append(opts, otel.Meters(metric.NewMeterProvider(metric.WithReader(reader))))...)
	if err != nil {
		t.Fatal(err)
	}
	return e, reader
}

// collect returns all values by name and attributes; of a distribution the count.
func collect(t *testing.T, reader *metric.ManualReader) map[string]float64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	add := func(name string, set attribute.Set, v float64) {
		var list []string
		for _, kv := range set.ToSlice() {
			list = append(list, kv.Value.String())
		}
		values[name+" "+strings.Join(list, " ")] = v
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Sum[float64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Count))
				}
			default:
				t.Fatalf("%s is a %T", m.Name, d)
			}
		}
	}
	return values
}

func wantValues(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			t.Errorf("%q is %v, want %v", name, v, value)
		}
	}
	if t.Failed() {
		t.Logf("%v", got)
	}
}

func acquire(t *testing.T, ctx context.Context, g sema.Gate) sema.Permit {
	t.Helper()
	p, err := g.Acquire(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestExporter_ExportsGatesAndDistributions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, reader := newExporter(t)
		r := registry.New(registry.Each(sema.Observe(e)))
		e.AddRegistry(r)
		db := r.Semaphore("db", 2, "why")
		q := wfq.New(1, sema.Name("tenants"), sema.Observe(e))
		e.Add("tenants", q)
		acquire(t, t.Context(), db)
		for _, g := range []sema.Gate{db, q.Class("acme")} {
			held := acquire(t, t.Context(), g)
			time.AfterFunc(time.Second, held.Release)
			acquire(t, t.Context(), g)
		}
		wantValues(t, collect(t, reader), map[string]float64{
			"sema.permits_capacity process db":                  2,
			"sema.permits_in_use process db":                    2,
			"sema.acquires process acquired db":                 3,
			"sema.acquire_wait process acquired db":             1,
			"sema.hold process db":                              1,
			"sema.class_permits_in_use process acme tenants":    1,
			"sema.class_acquire_wait process acme tenants":      1,
			"sema.head_of_queue_age process db":                 0,
			"sema.draining process db":                          0,
			"sema.class_acquires process acme acquired tenants": 2,
		})
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if after := collect(t, reader); after["sema.permits_capacity process db"] != 0 {
			t.Error("gauges are exported after Close")
		}
	})
}

func TestExporter_ConnectionsFollowTheConventions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, reader := newExporter(t, otel.Connections("pg"), otel.HoldEvery(1))
		items := pool.New(pool.Config[int]{
			Size: 2, Open: func(context.Context) (int, error) { return 0, nil },
			Options: []sema.Option{sema.Name("pg"), sema.Observe(e), sema.MaxWait(time.Minute)},
		})
		e.Add("pg", items)
		get := func() pool.Item[int] {
			item, err := items.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return item
		}
		a, b := get(), get()
		time.AfterFunc(time.Second, a.Release)
		c := get()
		if _, err := items.Get(t.Context()); err == nil {
			t.Fatal("no timeout")
		}
		go items.Get(t.Context())
		time.Sleep(time.Second)
		b.Release() // to the caller that waits
		synctest.Wait()
		go items.Get(t.Context())
		synctest.Wait()
		wantValues(t, collect(t, reader), map[string]float64{
			"db.client.connection.count pg used":       2,
			"db.client.connection.count pg idle":       0,
			"db.client.connection.max pg":              2,
			"db.client.connection.pending_requests pg": 1,
			"db.client.connection.timeouts pg":         1,
			"db.client.connection.wait_time pg":        2,
			"db.client.connection.use_time pg":         2,
			"sema.pool_items process pg lent":          2,
		})
		c.Release()
		synctest.Wait()
		items.Close()
	})
}

func TestExporter_NamesAreBounded(t *testing.T) {
	t.Parallel()
	e, reader := newExporter(t, otel.MaxNames(3))
	for i := range 1000 {
		acquire(t, t.Context(), sema.New(1, sema.Name(fmt.Sprint("user-", i)), sema.Observe(e))).Release()
	}
	holds := 0
	for name := range collect(t, reader) {
		if strings.HasPrefix(name, "sema.hold ") {
			holds++
		}
	}
	if holds != 4 {
		t.Errorf("%d series of holds, want 3 and other", holds)
	}
}

// TestExporter_ClassesAreBounded checks that classes beyond the bound share a series, except those
// that are declared.
func TestExporter_ClassesAreBounded(t *testing.T) {
	t.Parallel()
	e, reader := newExporter(t, otel.MaxClasses(2), otel.Declare("vip"))
	q := wfq.New(100, sema.Name("api"), sema.Observe(e))
	e.Add("api", q)
	for _, class := range []string{"a", "b", "c", "d", "vip"} {
		defer acquire(t, t.Context(), q.Class(class)).Release()
	}
	wantValues(t, collect(t, reader), map[string]float64{
		"sema.class_permits_in_use process a api": 1, "sema.class_permits_in_use process b api": 1,
		"sema.class_permits_in_use process vip api": 1, "sema.class_permits_in_use process other api": 2,
	})
}

func TestExporter_AWaitIsASpan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewInMemoryExporter()
		provider := trace.NewTracerProvider(trace.WithSyncer(spans))
		e, _ := newExporter(t, otel.Trace(provider))
		s := sema.New(1, sema.Name("db"), sema.Observe(e), sema.MaxWait(time.Minute))
		ctx, request := provider.Tracer("test").Start(t.Context(), "request")
		held := acquire(t, ctx, s)
		if n := len(spans.GetSpans()); n != 0 {
			t.Fatalf("%d spans of an acquire that did not wait", n)
		}
		time.AfterFunc(2*time.Second, held.Release)
		acquire(t, ctx, s)
		if _, err := s.Acquire(ctx, 1); err == nil {
			t.Fatal("no timeout")
		}
		request.End()

		got := spans.GetSpans()
		if len(got) != 3 {
			t.Fatalf("%d spans, want 2 waits and the request", len(got))
		}
		for i, want := range []struct {
			result string
			took   time.Duration
			code   codes.Code
		}{{"acquired", 2 * time.Second, codes.Unset}, {"timeout", time.Minute, codes.Error}} {
			span := got[i]
			if took := span.EndTime.Sub(span.StartTime); took != want.took || span.Parent.SpanID() != request.SpanContext().SpanID() || span.Status.Code != want.code {
				t.Errorf("span %q of %v, status %v, parent %v", span.Name, took, span.Status, span.Parent.SpanID())
			}
			for _, kv := range []attribute.KeyValue{
				attribute.String("semaphore", "db"), attribute.Int64("weight", 1), attribute.Int("waiters", 1), attribute.String("outcome", want.result),
			} {
				if !slices.Contains(span.Attributes, kv) {
					t.Errorf("span %d has attributes %v, want %v", i, span.Attributes, kv)
				}
			}
		}
	})
}
