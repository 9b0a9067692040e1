package server_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

// wantHeldBelow fails if a semaphore has more leases and queued acquires than a limit.
func wantHeldBelow(t *testing.T, store fleet.Store, limit int) {
	t.Helper()
	if leases, line := sessiontest.Held(t, store, "db"); len(leases)+len(line) > limit {
		t.Errorf("%d leases and %d queued acquires, want at most %d together", len(leases), len(line), limit)
	}
}

// TestLimits_HeldCannotBeEvaded checks that no batch makes the server count less than the store
// holds: a principal never has more leases and queued acquires than its limit.
func TestLimits_HeldCannotBeEvaded(t *testing.T) {
	t.Parallel()
	const limit, rounds = 8, 6 // a session counts, too
	split := func(lease protocol.Seq, ticket protocol.Ticket) protocol.Op {
		return protocol.Op{Verb: protocol.Split, Lease: lease, Ticket: ticket, Weight: 1}
	}
	cancel := func(ticket protocol.Ticket) protocol.Op {
		return protocol.Op{Verb: protocol.Cancel, Ticket: ticket}
	}
	// fill sends as many acquires as a batch allows, with distinct tickets.
	fill := func(round int, weight int64) (ops []protocol.Op) {
		for i := range limit {
			ops = append(ops, sessiontest.Acquire(protocol.Ticket(100*(round+1)+i), weight))
		}
		return ops
	}
	for name, evade := range map[string]func(t *testing.T, s *sessiontest.Session, store fleet.Store, round int){
		"another key, which the store does not know": func(t *testing.T, s *sessiontest.Session, store fleet.Store, round int) {
			s.Send(fill(round, 1)...)
			b := s.Next()
			b.Owner.Key = protocol.NewKey()
			_, _ = store.Apply(t.Context(), "db", b)
		},
		"an end with the number of an earlier batch": func(t *testing.T, s *sessiontest.Session, store fleet.Store, round int) {
			s.Send(fill(round, 1)...)
			_, _ = store.Apply(t.Context(), "db", protocol.Batch{Session: s.ID, Owner: sessiontest.Owner, Seq: s.Seq, End: true})
		},
		"one ticket in every batch": func(t *testing.T, s *sessiontest.Session, store fleet.Store, _ int) {
			for range limit {
				r, _ := store.Apply(t.Context(), "db", s.Next(sessiontest.Acquire(1, 1)))
				s.Receive(r)
			}
		},
		"one ticket many times in a batch": func(t *testing.T, s *sessiontest.Session, store fleet.Store, round int) {
			var ops []protocol.Op
			for range 2 * limit {
				ops = append(ops, sessiontest.Acquire(protocol.Ticket(round+1), 1))
			}
			r, _ := store.Apply(t.Context(), "db", s.Next(ops...))
			s.Receive(r)
		},
		"one ticket for many splits": func(t *testing.T, s *sessiontest.Session, store fleet.Store, round int) {
			if round == 0 {
				s.Granted(1, sessiontest.Acquire(1, 1000))
			}
			of := s.LastLease()
			for _, l := range snapshot(t, store).Leases {
				if l.Weight > 100 {
					of = l.Seq
				}
			}
			var ops []protocol.Op
			for range 2 * limit {
				ops = append(ops, split(of, 7))
			}
			r, _ := store.Apply(t.Context(), "db", s.Next(ops...))
			s.Receive(r)
		},
		"a cancel of an acknowledged grant": func(_ *testing.T, s *sessiontest.Session, _ fleet.Store, round int) {
			s.Send(fill(round, 1)...)
			s.Send()
			for i := range limit {
				s.Send(cancel(protocol.Ticket(100*(round+1) + i)))
			}
		},
		"a cancel before the acquire": func(_ *testing.T, s *sessiontest.Session, _ fleet.Store, round int) {
			for i, op := range fill(round, 1) {
				s.Send(cancel(protocol.Ticket(100*(round+1)+i)), op)
			}
		},
		"a release before the acquire": func(t *testing.T, s *sessiontest.Session, store fleet.Store, round int) {
			for _, op := range fill(round, 1) {
				next := protocol.Seq(1)
				for _, l := range snapshot(t, store).Leases {
					next = max(next, l.Seq+1)
				}
				s.Send(sessiontest.Release(next), op)
			}
		},
		"a release of a negative weight": func(t *testing.T, s *sessiontest.Session, store fleet.Store, round int) {
			s.Send(fill(round, 1)...)
			for _, l := range snapshot(t, store).Leases {
				s.Send(protocol.Op{Verb: protocol.Release, Lease: l.Seq, Weight: -1})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, server.Options{Tokens: []server.Token{all("a"), all("b")}, Limits: server.Limits{Held: 2 * limit}})
			store := s.store("?token=a")
			session := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 1000})
			for round := range rounds {
				evade(t, session, store, round)
			}
			session.Send()
			session.Send(fill(rounds, 1)...)
			wantHeldBelow(t, store, limit-1)
		})
	}
}

// TestLimits_HeldCountsQueuedTickets sends an acquire with the ticket of one that the store has
// granted without a reply: the store treats it as another acquire.
func TestLimits_HeldCountsQueuedTickets(t *testing.T) {
	t.Parallel()
	const limit = 8
	s := start(t, server.Options{Tokens: []server.Token{all("a"), all("b")}, Limits: server.Limits{Held: 2 * limit}})
	store := s.store("?token=a")
	session := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 10})
	for round := range protocol.Ticket(6) {
		blocker := sessiontest.Begin(t, s.store("?token=b"), "db", protocol.Config{Capacity: 10})
		blocker.Send(sessiontest.Acquire(1, 10))
		var ops []protocol.Op
		for i := range protocol.Ticket(3) {
			ops = append(ops, sessiontest.Acquire(10*round+i+1, 1))
		}
		session.Send(ops...)
		b := blocker.Next()
		b.End = true
		if _, err := blocker.Store.Apply(t.Context(), "db", b); err != nil {
			t.Fatal(err)
		}
		if r, err := store.Apply(t.Context(), "db", session.Next(ops...)); err == nil {
			session.Receive(r)
		}
		session.Send()
	}
	wantHeldBelow(t, store, limit-1)
}

// TestLimits_HeldIsTheOwners checks that a principal that knows the id of another principal's
// lease cannot stop it from being counted.
func TestLimits_HeldIsTheOwners(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{all("a"), all("b")}, Limits: server.Limits{Held: 2}})
	s.auth = "a"
	lease := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=9", "").header.Get("Location")
	s.auth = "b"
	s.want(410, "PUT", lease, "")
	s.want(410, "DELETE", lease, "")
	s.auth = "a"
	s.want(429, "POST", "/v1/semaphores/db/leases", "")
	s.want(204, "DELETE", lease, "")
	s.want(201, "POST", "/v1/semaphores/db/leases", "")
}

func snapshot(t *testing.T, store fleet.Store) protocol.Snapshot {
	t.Helper()
	s, err := store.Inspect(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLimits_HeldCountsSessionsOfOtherServers checks that a session opened at another server
// counts from its first batch, also if the client does not wait for the reply.
func TestLimits_HeldCountsSessionsOfOtherServers(t *testing.T) {
	t.Parallel()
	const limit = 8
	memory := memstore.New()
	store := &hastyStore{Store: memory}
	s := open(t, store, server.Options{Tokens: []server.Token{all("a"), all("b")}, Limits: server.Limits{Held: 2 * limit}})
	by := sessiontest.Opener("me")
	by.Owner.Principal = "token:a"
	for n := range 3 { // sessions
		id, _, err := memory.Open(t.Context(), "db", server.Declaration{Capacity: 1000}.Config(), by)
		if err != nil {
			t.Fatal(err)
		}
		ops := make([]string, limit)
		for i := range ops {
			ops[i] = fmt.Sprintf(`{"verb":"VERB_ACQUIRE","ticket":"%d","weight":"1"}`, i+1)
		}
		body := fmt.Sprintf(`{"name":"db","session":"%d","key":%q,"seq":"1","ops":[%s]}`,
			id, base64.StdEncoding.EncodeToString(by.Owner.Key[:]), strings.Join(ops, ","))
		ctx, cancel := context.WithCancel(t.Context())
		store.cancel.Store(&cancel)
		r := httptest.NewRequestWithContext(ctx, "POST", semav1connect.StoreServiceApplyProcedure, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer a")
		s.ServeHTTP(httptest.NewRecorder(), r)
		if ctx.Err() == nil {
			t.Fatalf("session %d: the batch did not reach the store", n)
		}
	}
	wantHeldBelow(t, memory, limit)
}

// A hastyStore applies a batch, then the client disconnects. Like a store behind a network, it
// then returns no reply.
type hastyStore struct {
	*memstore.Store
	cancel atomic.Pointer[context.CancelFunc]
}

func (h *hastyStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	reply, err := h.Store.Apply(ctx, name, b)
	if cancel := h.cancel.Load(); cancel != nil {
		(*cancel)()
	}
	if ctx.Err() != nil {
		return protocol.Reply{}, context.Cause(ctx)
	}
	return reply, err
}

// TestLimits_BatchesOfANeighbourCountForItself checks that a token that names the session of
// another principal uses its own limits, and releases nothing.
func TestLimits_BatchesOfANeighbourCountForItself(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{all("a"), all("b")}, Limits: server.Limits{Held: 8}})
	victim := sessiontest.Begin(t, s.store("?token=a"), "db", protocol.Config{Capacity: 100})
	victim.Granted(3, sessiontest.Acquire(1, 1), sessiontest.Acquire(2, 1), sessiontest.Acquire(3, 1))
	neighbour := s.store("?token=b")
	for _, b := range []protocol.Batch{{End: true}, {Ops: []protocol.Op{sessiontest.Acquire(9, 1)}}} {
		b.Session, b.Owner, b.Seq = victim.ID, sessiontest.Owner, 50
		if r, err := neighbour.Apply(t.Context(), "db", b); err != nil || r.Status != protocol.Unknown {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	s.auth = "a"
	if a := s.send("POST", "/v1/semaphores/db/leases", ""); a.status != 429 {
		t.Errorf("a neighbour has stopped the counting of a session: %s", fmt.Sprint(a.status, a.text))
	}
}

// TestLimits_RejectedTicketsAreBounded checks that the records of a session at its limit are
// bounded, also if the store applies none of its batches.
func TestLimits_RejectedTicketsAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{all("a"), all("b")}, Limits: server.Limits{Held: 4}})
	store := s.store("?token=a")
	session := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 100})
	session.Send(sessiontest.Acquire(1, 1))
	for i := range 10 {
		b := protocol.Batch{Session: session.ID, Owner: sessiontest.Owner} // Seq 0 is stale
		for k := range 100 {
			b.Ops = append(b.Ops, sessiontest.Acquire(protocol.Ticket(1000*(i+1)+k), 1))
		}
		if r, err := store.Apply(t.Context(), "db", b); err != nil || r.Status != protocol.Stale {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if n := s.Denied(); n > 0 {
		t.Errorf("%d tickets of batches that were not applied are recorded", n)
	}
}

// TestLimits_KeyedRequestsOfDisconnectedClientsCount checks requests with an idempotency key. They
// stay queued when their client disconnects, so that a retry finds them. They count until then:
// new keys do not evade the limits.
func TestLimits_KeyedRequestsOfDisconnectedClientsCount(t *testing.T) {
	t.Parallel()
	const limit, requests = 5, 12
	store := memstore.New()
	s := open(t, store, server.Options{Tokens: []server.Token{
		{Name: "a", Verbs: []server.Verb{server.Read, server.Acquire}, Hash: server.HashToken("secret"), Limits: server.Quota{Held: limit, Waiting: limit}},
	}})
	s.auth = "secret"
	s.want(201, "POST", "/v1/semaphores/db/leases", `{"capacity":1,"ttl":"1h"}`)
	queued := func() int {
		now, err := store.Inspect(t.Context(), "db")
		if err != nil {
			t.Fatal(err)
		}
		return len(now.Queue)
	}
	for i := range requests {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		before := queued()
		go func() {
			defer close(ended)
			body := fmt.Sprintf(`{"wait":"1m","idempotency_key":"key-%d"}`, i)
			r, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/semaphores/db/leases", strings.NewReader(body))
			r.Header.Set("Authorization", "Bearer secret")
			if response, err := http.DefaultClient.Do(r); err == nil {
				response.Body.Close()
			}
		}()
		for done := false; !done && queued() == before; {
			select {
			case <-ended: // rejected
				done = true
			case <-time.After(time.Millisecond):
			}
		}
		cancel()
		<-ended
	}
	if n := queued(); n == 0 || n > limit {
		t.Errorf("%d are queued, want some, and at most %d", n, limit)
	}
}
