package server_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/internal/storetest/redistest"
	"github.com/sema-go/sema/x/server"
)

// TestAcquire_ReportsWhenTheStoreCanDecide checks the reply while a holder may have expired and the
// store cannot decide yet: it contains the time until the decision.
func TestAcquire_ReportsWhenTheStoreCanDecide(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	store := memstore.NewWithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	s := open(t, store, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1&ttl=10m", "")
	s.want(429, "POST", "/v1/semaphores/db/leases", "").wantRetry(t, 1, 1, "full") // the holder has not expired
	ahead.Store(int64(time.Hour))
	s.want(429, "POST", "/v1/semaphores/db/leases", "").wantRetry(t, 2, 600, "full")
}

// TestAcquire_OverARedisThatWasJustStarted checks that acquires are rejected as undecided: the
// Redis does not know what an earlier run has granted.
func TestAcquire_OverARedisThatWasJustStarted(t *testing.T) {
	t.Parallel()
	store, err := fleet.OpenStore(t.Context(), redistest.StartNew(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, store, server.Options{})
	a := s.want(503, "POST", "/v1/semaphores/db/leases?capacity=1&ttl=50m", "")
	a.wantRetry(t, 2, 3000, "unavailable")
	if a.body["type"] != "/problems/store-undecided" || !strings.Contains(a.text, "restarted") {
		t.Error(a.text)
	}
}

// TestDashboard_OverARedisThatWasJustStarted checks that pages state why an acquire waits although permits are free.
func TestDashboard_OverARedisThatWasJustStarted(t *testing.T) {
	t.Parallel()
	store, err := fleet.OpenStore(t.Context(), redistest.StartNew(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, store, server.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() {
		r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/semaphores/db/leases?capacity=3&ttl=50m&wait=60s", nil)
		if err != nil {
			t.Error(err)
			return
		}
		if reply, err := http.DefaultClient.Do(r); err == nil {
			reply.Body.Close()
		}
	})
	b := s.tab()
	// The page of the semaphore is read first, before there is a reason to show.
	for _, c := range []struct{ path, text string }{
		{"/ui/semaphore?name=db", "The first waiter would fit, but the store grants nothing yet"},
		{"/ui/", "s, 3 free"},
	} {
		waitFor(t, c.path+" has the reason", func() bool { return strings.Contains(b.send("GET", c.path, nil).text, c.text) })
	}
}

// TestAcquire_RejectedWhileTheStoreCannotDecide checks that a request that is too large, or for a
// draining semaphore, is rejected as usual while the store cannot decide.
func TestAcquire_RejectedWhileTheStoreCannotDecide(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	store := memstore.NewWithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	s := open(t, store, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1&ttl=10m", "")
	ahead.Store(int64(time.Hour))
	if a := s.want(422, "POST", "/v1/semaphores/db/leases?weight=2", ""); a.header.Get("Retry-After") != "" || strings.Contains(a.text, "restarted") {
		t.Errorf("Retry-After %q: %s", a.header.Get("Retry-After"), a.text)
	}
	s.want(200, "POST", "/v1/semaphores/db/drain", "")
	a := s.want(503, "POST", "/v1/semaphores/db/leases", "")
	a.wantRetry(t, 10, 10, "draining")
	if a.body["type"] != "/problems/draining" {
		t.Error(a.text)
	}
}
