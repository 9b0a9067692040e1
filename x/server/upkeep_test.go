package server_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server"
)

// TestIdle_SemaphoresAreDeleted checks that unused semaphores are deleted. Those in use, declared,
// or configured by an administrator stay.
func TestIdle_SemaphoresAreDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		s, err := server.New(store, server.Options{
			Logger: slog.New(slog.DiscardHandler), Limits: server.Limits{Idle: 24 * time.Hour, Names: 6},
			Declared: []server.Declaration{{Name: "declared", Capacity: 1}, {Name: "some-*", Capacity: 1}, {Name: "long-*", Capacity: 1, TTL: 100 * time.Hour}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(context.Background())
		ask := func(method, path string) int {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			return w.Code
		}
		acquire := func(name string) {
			t.Helper()
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest("POST", "/v1/semaphores/"+name+"/leases?capacity=1", nil))
			if w.Code != 201 {
				t.Fatalf("%s: %d %s", name, w.Code, w.Body)
			}
			if name != "long-held" {
				if status := ask("DELETE", w.Header().Get("Location")); status != 204 {
					t.Fatal(status)
				}
			}
		}
		names := func() (all []string) {
			for s, err := range fleet.Summaries(context.Background(), store, protocol.ListQuery{}) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, s.Name)
			}
			return all
		}
		for _, name := range []string{"unused", "long-held", "drained", "declared", "some-1", "used"} {
			acquire(name)
		}
		if ask("POST", "/v1/semaphores/drained/drain") != 200 || ask("POST", "/v1/semaphores/drained/resume") != 200 {
			t.Fatal("not drained")
		}
		for range 30 {
			time.Sleep(time.Hour)
			acquire("used")
		}
		synctest.Wait()
		if got := names(); !slices.Equal(got, []string{"declared", "drained", "long-held", "used"}) {
			t.Errorf("%v are left", got)
		}
		acquire("new-1") // their names no longer count
		acquire("new-2")
	})
}
