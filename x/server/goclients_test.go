package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

// connect calls a procedure with JSON, with the site's token.
func (s *site) connect(procedure, body string) (status int, text string) {
	s.t.Helper()
	request, err := http.NewRequest("POST", s.url+procedure, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if s.auth != "" {
		request.Header.Set("Authorization", "Bearer "+s.auth)
	}
	response, err := s.http.Client().Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(raw)
}

// store opens the server's store as a Go client does.
func (s *site) store(query string) fleet.Store {
	s.t.Helper()
	store, err := fleet.OpenStore(s.t.Context(), strings.Replace(s.url, "http:", "sema:", 1)+query)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { store.Close() })
	return store
}

// TestLimits_GoClientAtItsLimit checks that a Go client at its limit is rejected, and keeps its
// leases.
func TestLimits_GoClientAtItsLimit(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{all("a"), all("b")}, Limits: server.Limits{Held: 6}})
	db, err := s.dial("?token=a").Semaphore("db", 100, fleet.TTL(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	p, err := db.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := db.Acquire(t.Context(), 1); !errors.Is(err, sema.ErrQueueFull) {
			t.Errorf("%v", err)
		}
	}
	select {
	case <-p.Lost():
		t.Error("a held lease was lost")
	case <-time.After(2 * time.Second): // longer than a TTL
	}
	if err := fleet.Release(t.Context(), p); err != nil {
		t.Error(err)
	}
	if _, err := db.Acquire(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

// TestStoreService_BatchIsBounded checks that one request cannot cause unbounded work, and that a
// session cannot keep an unbounded number of unacknowledged results.
func TestStoreService_BatchIsBounded(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	store := s.store("")
	session := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 1 << 20})
	var ops []protocol.Op
	for i := range 1025 {
		ops = append(ops, sessiontest.Acquire(protocol.Ticket(i+1), 1))
	}
	b := session.Next(ops...)
	if _, err := store.Apply(t.Context(), "db", b); !errors.Is(err, sema.ErrInvalid) || !strings.Contains(err.Error(), "1025 operations in a batch: want 1024 at most") {
		t.Errorf("%v", err)
	}
	b.Ops = b.Ops[:1024]
	var err error
	for round := 1; err == nil; round++ {
		if round > 6 {
			t.Fatal("unacknowledged results are not bounded")
		}
		_, err = store.Apply(t.Context(), "db", b)
		b.Seq++
		for i := range b.Ops { // each is rejected, and none is acknowledged
			b.Ops[i] = protocol.Op{Verb: protocol.Acquire, Ticket: protocol.Ticket(round*10_000 + i)}
		}
	}
	if !strings.Contains(err.Error(), "not acknowledged") {
		t.Error(err)
	}
}

// TestMetrics_CountGoClients checks that a batch of a Go client is counted like an acquire over
// HTTP.
func TestMetrics_CountGoClients(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	db, err := s.dial("").Semaphore("db", 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p, err := db.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.TryAcquire(t.Context(), 1); !errors.Is(err, sema.ErrFull) {
			t.Fatal(err)
		}
		if err := fleet.Release(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	client := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	lease, err := client.Acquire(t.Context(), &semav1.AcquireRequest{Semaphore: "db"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Release(t.Context(), &semav1.ReleaseRequest{Semaphore: "db", Id: lease.Lease.Id}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hold, err := client.Hold(ctx, &semav1.HoldRequest{Acquire: &semav1.AcquireRequest{Semaphore: "db"}})
	if err != nil || !hold.Receive() {
		t.Fatal(err)
	}
	cancel()
	hold.Close()
	for _, line := range []string{`sema_acquires_total{backend="store",outcome="acquired",semaphore="db"} 5`, `sema_acquires_total{backend="store",outcome="rejected",semaphore="db"} 3`, "sema_releases_total 5"} {
		waitFor(t, line, func() bool { return s.metric(line) })
	}
}
