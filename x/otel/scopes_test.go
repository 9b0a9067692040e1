package otel_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
	"github.com/sema-go/sema/x/otel"
	"github.com/sema-go/sema/x/prom"
)

// An exporter is what x/otel and x/prom have in common.
type exporter interface {
	sema.Observer
	Add(name string, gate any)
}

// addEveryKind adds a gate of every scope, each in use, and makes it wait where it can.
func addEveryKind(t *testing.T, e exporter) {
	t.Helper()
	client := fleet.New(memstore.New())
	t.Cleanup(func() { client.Close(context.Background(), fleet.CloseAbandon) })
	gpu, err := client.Semaphore("gpu", 4, sema.Observe(e))
	if err != nil {
		t.Fatal(err)
	}
	disk, err := host.Open("disk", 3, host.Dir(t.TempDir()), sema.Observe(e))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close() })
	mail := rate.New(100, time.Second, sema.Name("mail"), sema.Observe(e))
	tenants := wfq.New(10, sema.Name("tenants"), sema.Observe(e))
	items := pool.New(pool.Config[int]{
		Size: 2, Open: func(context.Context) (int, error) { return 0, nil }, Options: []sema.Option{sema.Name("pg"), sema.Observe(e)},
	})
	api := admit.New(admit.Config{Name: "api", Queue: wfq.New(5), Breaker: admit.NewBreaker(admit.BreakerConfig{})})
	keys := group.NewKeyed(2, sema.Name("keys"), sema.Observe(e))
	work := group.New(t.Context(), sema.New(2))
	t.Cleanup(func() { work.Wait() })
	for name, gate := range map[string]any{
		"gpu": gpu, "disk": disk, "mail": mail, "tenants": tenants, "pg": items, "api": api, "keys": keys, "import": work,
	} {
		e.Add(name, gate)
	}
	for _, g := range []sema.Gate{gpu, disk, mail, tenants.Class("acme"), keys.Of("a")} {
		p := acquire(t, t.Context(), g)
		t.Cleanup(p.Release)
	}
	item, err := items.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(item.Release)
	admitted, err := api.Admit(t.Context(), admit.Request{Class: "paid"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admitted.Done(admit.OK) })
	api.Shed(true)
	if _, err := api.Admit(t.Context(), admit.Request{Class: "free"}); err == nil {
		t.Fatal("admitted while shedding")
	}
}

func TestExporter_ExportsEveryScope(t *testing.T) {
	t.Parallel()
	e, reader := newExporter(t)
	addEveryKind(t, e)
	wantValues(t, collect(t, reader), map[string]float64{
		"sema.permits_capacity fleet gpu":                4,
		"sema.permits_in_use fleet gpu":                  1,
		"sema.leases_held_permits fleet gpu":             1,
		"sema.leases_lost fleet expired gpu":             0,
		"sema.lease_renewals fleet error gpu":            0,
		"sema.store_failures fleet gpu":                  0,
		"sema.failed_open fleet gpu":                     0,
		"sema.permits_capacity host disk":                3,
		"sema.permits_in_use host disk":                  1,
		"sema.acquires host acquired disk":               1,
		"sema.rate_permits process mail":                 100,
		"sema.acquires process acquired mail":            1,
		"sema.class_permits_in_use process acme tenants": 1,
		"sema.pool_items process pg lent":                1,
		"sema.permits_in_use process api":                1,
		"sema.sheds process shedding api":                1,
		"sema.class_sheds process free shedding api":     1,
		"sema.shedding process api":                      1,
		"sema.breaker_state process api closed":          1,
		"sema.class_permits_in_use process a keys":       1,
		"sema.permits_capacity process import":           2,
		"sema.group_running process import":              0,
	})
}

// names returns the names of the families of a registry that begin with sema_, with the
// names of their labels.
func names(t *testing.T, r *prometheus.Registry) map[string]string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "sema_") {
			continue
		}
		var labels []string
		for _, l := range f.Metric[0].Label {
			if !strings.HasPrefix(l.GetName(), "otel_scope_") {
				labels = append(labels, l.GetName())
			}
		}
		slices.Sort(labels)
		found[f.GetName()] = f.GetType().String() + " " + strings.Join(labels, ",")
	}
	return found
}

// TestExporter_ConversionToPrometheusGivesTheNamesOfProm exports the same gates through
// x/prom, and through OpenTelemetry with its exporter for Prometheus. Rules and dashboards
// are for both.
func TestExporter_ConversionToPrometheusGivesTheNamesOfProm(t *testing.T) {
	t.Parallel()
	converted := prometheus.NewRegistry()
	reader, err := otelprom.New(otelprom.WithRegisterer(converted))
	if err != nil {
		t.Fatal(err)
	}
	e, err := otel.New(otel.Meters(metric.NewMeterProvider(metric.WithReader(reader))))
	if err != nil {
		t.Fatal(err)
	}
	metrics, direct := prom.New(), prometheus.NewRegistry()
	direct.MustRegister(metrics)
	for _, to := range []exporter{e, metrics} {
		addEveryKind(t, to)
		s := sema.New(1, sema.Name("db"), sema.Observe(to))
		to.Add("db", s)
		held := acquire(t, t.Context(), s)
		go func() {
			for s.Stats().Waiters == 0 {
				time.Sleep(time.Millisecond)
			}
			held.Release()
		}()
		acquire(t, t.Context(), s).Release()
		for range 200 { // so that a hold is sampled
			acquire(t, t.Context(), s).Release()
		}
	}
	want, got := names(t, direct), names(t, converted)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		// Without a wait, x/otel has no distribution of a class.
		if name != "sema_class_acquire_wait_seconds" && got[name] != want[name] {
			t.Errorf("%s: %q by OpenTelemetry, %q by x/prom", name, got[name], want[name])
		}
	}
	for name := range got {
		if want[name] == "" {
			t.Errorf("%s: only by OpenTelemetry", name)
		}
	}
	if len(want) < 40 {
		t.Errorf("only %d metrics are compared", len(want))
	}
}

// TestExporter_WaitsOfEveryScopeAreSpans checks the span of a wait at gates that are not
// semaphores of the process.
func TestExporter_WaitsOfEveryScopeAreSpans(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	e, _ := newExporter(t, otel.Trace(provider))
	client := fleet.New(memstore.New())
	defer client.Close(context.Background(), fleet.CloseAbandon)
	gpu, err := client.Semaphore("gpu", 1, sema.Observe(e))
	if err != nil {
		t.Fatal(err)
	}
	disk, err := host.Open("disk", 1, host.Dir(t.TempDir()), sema.Observe(e))
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	tenants := wfq.New(1, sema.Name("tenants"), sema.Observe(e))
	items := pool.New(pool.Config[int]{
		Size: 1, Open: func(context.Context) (int, error) { return 0, nil }, Options: []sema.Option{sema.Name("pg"), sema.Observe(e)},
	})
	defer items.Close()
	item := func(ctx context.Context) (func(), error) {
		i, err := items.Get(ctx)
		return i.Release, err
	}
	permit := func(g sema.Gate) func(context.Context) (func(), error) {
		return func(ctx context.Context) (func(), error) {
			p, err := g.Acquire(ctx, 1)
			return p.Release, err
		}
	}
	for _, test := range []struct {
		name, class string
		get         func(context.Context) (release func(), err error)
		waiters     func() int
	}{
		{"gpu", "", permit(gpu), func() int { return gpu.Stats().Waiters }},
		{"disk", "", permit(disk), func() int { return disk.Stats().Waiters }},
		{"tenants", "acme", permit(tenants.Class("acme")), func() int { return tenants.Stats().Waiters }},
		{"pg", "", item, func() int { return items.Stats().Waiters }},
	} {
		spans.Reset()
		ctx, request := provider.Tracer("test").Start(t.Context(), "request")
		release, err := test.get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(spans.GetSpans()); n != 0 {
			t.Errorf("%s: %d spans without a wait", test.name, n)
		}
		go func() {
			for test.waiters() == 0 {
				time.Sleep(time.Millisecond)
			}
			release()
		}()
		second, err := test.get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		second()
		got := spans.GetSpans()
		request.End()
		if len(got) != 1 || got[0].Name != "sema.acquire" || got[0].Parent.SpanID() != request.SpanContext().SpanID() {
			t.Errorf("%s: spans %+v, want one of the wait, in the request", test.name, got)
			continue
		}
		want := []attribute.KeyValue{attribute.String("semaphore", test.name), attribute.String("outcome", "acquired"), attribute.Int64("weight", 1)}
		if test.class != "" {
			want = append(want, attribute.String("class", test.class))
		}
		for _, kv := range want {
			if !slices.Contains(got[0].Attributes, kv) {
				t.Errorf("%s: attributes %v, want %v", test.name, got[0].Attributes, kv)
			}
		}
	}
}
