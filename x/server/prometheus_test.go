package server_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest/promtest"
	"github.com/sema-go/sema/x/remotestore"
	"github.com/sema-go/sema/x/server"
)

// TestMetrics_AlertsOfALoadedServer scrapes a server with a real Prometheus, while a Go client
// and HTTP clients use it. The times of the rules are scaled from minutes to seconds.
func TestMetrics_AlertsOfALoadedServer(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../deploy/prometheus/sema.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(rules, promtest.Scale(data), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, server.Options{})
	ctx, stop := context.WithCancel(context.Background())
	var load sync.WaitGroup
	store, err := remotestore.Open(ctx, remotestore.Options{Hosts: []string{strings.TrimPrefix(s.url, "http://")}})
	if err != nil {
		t.Fatal(err)
	}
	client := fleet.New(store)
	defer func() {
		stop()
		load.Wait()
		if err := client.Close(context.Background(), fleet.CloseRelease); err != nil {
			t.Error(err)
		}
	}()
	use := func(goroutines int, name string, capacity int64, hold, pause time.Duration) {
		gate, err := client.Semaphore(name, capacity)
		if err != nil {
			t.Fatal(err)
		}
		for range goroutines {
			load.Go(func() {
				for ctx.Err() == nil {
					_ = sema.Do(ctx, gate, 1, func(context.Context) error { time.Sleep(hold); return nil })
					time.Sleep(pause)
				}
			})
		}
	}
	use(1, "healthy", 10, 5*time.Millisecond, 50*time.Millisecond)
	use(6, "exhausted", 2, 50*time.Millisecond, 0)
	s.want(201, "POST", "/v1/semaphores/stuck/leases?capacity=1&ttl=5m", "")
	load.Go(func() { // waits for a permit that is never released
		gate, err := client.Semaphore("stuck", 1)
		if err == nil {
			_, err = gate.Acquire(ctx, 1)
		}
		if ctx.Err() == nil {
			t.Error("acquired a permit that is held: ", err)
		}
	})

	prometheus := promtest.Start(t, promtest.Config{Target: strings.TrimPrefix(s.url, "http://"), Rules: []string{rules}})
	missing := []string{"SemaExhausted exhausted", "SemaStuck stuck"}
	for end := time.Now().Add(2 * time.Minute); len(missing) > 0; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not fire: %v; alerts: %v", missing, prometheus.Alerts())
		}
		for _, a := range prometheus.Alerts() {
			if a.Labels["semaphore"] == "healthy" {
				t.Fatalf("alert for a healthy semaphore: %v", a)
			}
			if a.State == "firing" {
				fires := fmt.Sprint(a.Labels["alertname"], " ", a.Labels["semaphore"])
				missing = slices.DeleteFunc(missing, func(m string) bool { return m == fires })
			}
		}
	}
	for query, want := range map[string]float64{
		`sema_permits_capacity{semaphore="healthy"}`:                                        10,
		`sema_permits_in_use{semaphore="stuck"}`:                                            1,
		`sema_waiters{semaphore="stuck"}`:                                                   1,
		`sema_acquires_total{semaphore="healthy",outcome="acquired"} > bool 5`:              1,
		`histogram_quantile(0.5, sema_hold_seconds_bucket{semaphore="exhausted"}) > bool 0`: 1,
	} {
		var got []float64
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if got = prometheus.Query(query); len(got) > 0 { // nothing: the last scrape took too long
				break
			}
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}
