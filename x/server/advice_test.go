package server_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/advice"
	"github.com/sema-go/sema/x/server"
)

func TestAdvice_OfASemaphore(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(404, "GET", "/v1/semaphores/db/advice", "")
	lease := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=4", "")
	if a := s.want(200, "GET", "/v1/semaphores/db/advice", ""); !strings.Contains(fmt.Sprint(a.body["unknown"]), "too few holds have ended to compute with means: 0 in the last") || a.body["needed"] != nil {
		t.Error(a.text)
	}
	s.want(204, "DELETE", lease.header.Get("Location"), "")
	for range 25 {
		lease := s.want(201, "POST", "/v1/semaphores/db/leases", "")
		s.want(204, "DELETE", lease.header.Get("Location"), "")
	}
	a := s.want(200, "GET", "/v1/semaphores/db/advice", "")
	// On a busy machine the holds are long enough to need more than one permit.
	load, _ := a.body["load"].(float64)
	if load <= 0 || a.body["needed"] != max(1, math.Ceil(load/advice.Utilisation)) || len(a.body["expected"].([]any)) < 3 {
		t.Error(a.text)
	}
}

// A claimed store makes a Go client claim to run in a process of its own.
type claimed struct {
	fleet.Store
	process int64
}

func (c claimed) Open(ctx context.Context, name string, config protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	by.Client.Process = c.process
	return c.Store.Open(ctx, name, config, by)
}

// TestDeadlocks_AcrossProcesses checks two processes that acquire two semaphores in opposite
// orders, through the service, and a third process whose goroutines share one of each.
func TestDeadlocks_AcrossProcesses(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	acquire := func(process int64, name string, capacity int64) {
		c := fleet.New(claimed{s.store(""), process})
		t.Cleanup(func() { _ = c.Close(context.Background(), fleet.CloseAbandon) })
		db, err := c.Semaphore(name, capacity, fleet.TTL(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Acquire(t.Context(), 1); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	}
	acquire(1, "a", 1)
	acquire(2, "b", 1)
	acquire(3, "shared", 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	for process, name := range map[int64]string{1: "b", 2: "a", 3: "shared"} {
		wg.Go(func() { acquire(process, name, 1) })
	}
	if a := s.want(200, "GET", "/v1/deadlocks", ""); len(a.body["deadlocks"].([]any)) != 0 {
		t.Errorf("the waits are short: %s", a.text)
	}
	waitFor(t, "the deadlock is found", func() bool {
		a := s.want(200, "GET", "/v1/deadlocks", "")
		found := a.body["deadlocks"].([]any)
		if len(found) > 1 || strings.Contains(a.text, "shared") {
			t.Fatal(a.text)
		}
		return len(found) == 1 && strings.Contains(a.text, "process 1 of") && strings.Contains(a.body["caveat"].(string), "possible")
	})
	for _, name := range []string{"a", "b", "shared"} {
		for _, lease := range s.leases(name) {
			s.want(204, "POST", "/v1/semaphores/"+name+"/leases/"+lease+"/revoke", `{"at_once": true, "why": "test"}`)
		}
	}
}
