package prom_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/registry"
	"github.com/sema-go/sema/x/prom"
)

func ExampleNew() {
	metrics := prom.New()
	limits := registry.New(registry.Each(sema.Observe(metrics)))
	metrics.AddRegistry(limits)
	exported := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	exported.MustRegister(metrics)
	handler := promhttp.HandlerFor(exported, promhttp.HandlerOpts{})

	db := limits.Semaphore("db", 40, "PostgreSQL accepts 50 connections")
	permit, _ := db.Acquire(context.Background(), 3)
	defer permit.Release()

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text, _ := io.ReadAll(w.Body)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "sema_permits_") {
			fmt.Print(line)
		}
	}
	// Output:
	// sema_permits_capacity{backend="process",semaphore="db"} 40
	// sema_permits_debt{backend="process",semaphore="db"} 0
	// sema_permits_in_use{backend="process",semaphore="db"} 3
}
