package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

// limited returns a context that ends after d, for calls that fail.
func limited(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	t.Cleanup(cancel)
	return ctx
}

func TestStore_ReportsAnUnreachableServer(t *testing.T) {
	t.Parallel()
	store := openBy(t, Options{Endpoints: []string{"127.0.0.1:1"}, Password: "hush"})
	_, err := store.Inspect(limited(t, 30*time.Second), "a")
	storetest.WantError(t, err, "cannot reach etcd at 127.0.0.1:1: connection refused")
	_, err = store.List(limited(t, 30*time.Second), protocol.ListQuery{})
	storetest.WantError(t, err, "connection refused")
	secret := openBy(t, Options{Endpoints: []string{"127.0.0.1:1"}, User: "me", Password: "hush"})
	_, err = secret.Inspect(limited(t, 30*time.Second), "a")
	storetest.WantError(t, err, "127.0.0.1:1")
	if strings.Contains(err.Error(), "hush") {
		t.Errorf("the password is in %q", err)
	}
}

func TestClose_EndsAllOperations(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store := openAt(t, server, "")
	sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	listened := make(chan error)
	go func() { listened <- store.Listen(ctx, "me", func(string) {}) }()
	time.Sleep(50 * time.Millisecond)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	storetest.WantError(t, <-listened, "closed")
	_, err := store.Inspect(ctx, "a")
	storetest.WantError(t, err, "closed")
	_, err = store.List(ctx, protocol.ListQuery{})
	storetest.WantError(t, err, "closed")
}

// TestStore_ReadsAgainAfterAPanic checks also that the caller gets the panic as an error.
func TestStore_ReadsAgainAfterAPanic(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store := openAt(t, server, "")
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	lease := s.Granted(1, sessiontest.Acquire(1, 1))[0]
	o := store.do("a", &call{ctx: ctx, act: func(now protocol.Micros, v *view) result {
		v.state.Apply(now, protocol.Batch{Owner: sessiontest.Owner, Session: s.ID, Seq: 99, End: true})
		panic("broken by the test")
	}})
	storetest.WantError(t, o.err, "panic: broken by the test")
	sessiontest.WantHeld(t, store, "a", lease)
	s.Send(sessiontest.Release(lease))
}

// TestStore_SurvivesRestartsOfTheServer kills the server during batches.
func TestStore_SurvivesRestartsOfTheServer(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store := openAt(t, server, "")
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 3})
	const rounds = 3
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(stop)
		for range rounds {
			time.Sleep(200 * time.Millisecond)
			server.Nodes[0].Restart()
		}
	})
	batches, failures := 0, 0
	var held protocol.Seq
	for n := protocol.Ticket(1); ; n++ {
		b := s.Next(sessiontest.Release(held), sessiontest.Acquire(n, 3))
		r, err := store.Apply(ctx, "a", b)
		for ; err != nil; r, err = store.Apply(ctx, "a", b) {
			failures++ // the same batch is sent again
			time.Sleep(5 * time.Millisecond)
		}
		if r.Status != protocol.Applied && r.Status != protocol.Repeated || len(r.Results) != 1 || r.Results[0].Kind != protocol.Granted {
			t.Fatalf("batch %d: %+v", n, r)
		}
		held = r.Results[0].Lease
		s.Receive(r)
		batches++
		select {
		case <-stop:
			wg.Wait()
			sessiontest.WantHeld(t, openAt(t, server, ""), "a", held)
			t.Logf("%d batches, %d failures", batches, failures)
			return
		default:
		}
	}
}

// TestApply_IsAppliedOnceIfTheReplyIsLost checks that what was written is not written again.
func TestApply_IsAppliedOnceIfTheReplyIsLost(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	p := storetest.NewProxy(t, server.Nodes[0].Address)
	store := openBy(t, Options{Endpoints: []string{p.Address}})
	other := openAt(t, server, "")
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 5})
	lease := s.Granted(1, sessiontest.Acquire(1, 1))[0]

	// The same call retries until it knows the result.
	p.SetFault(storetest.Fault{LoseReplies: true})
	time.AfterFunc(500*time.Millisecond, func() {
		p.Cut()
		p.Heal()
	})
	second := s.Granted(1, sessiontest.Acquire(2, 1))[0]
	if p.Lost() == 0 {
		t.Error("no reply was lost")
	}
	sessiontest.WantHeld(t, other, "a", lease, second)

	// So does an operation that cannot be repeated.
	p.SetFault(storetest.Fault{LoseReplies: true})
	time.AfterFunc(500*time.Millisecond, func() {
		p.Cut()
		p.Heal()
	})
	if err := store.Administer(ctx, "a", fleet.Command{Revoke: &fleet.Revocation{Lease: second, AtOnce: true}}); err != nil {
		t.Errorf("the revocation is not known to be done: %v", err)
	}
	sessiontest.WantHeld(t, other, "a", lease)

	// A caller that stops waiting sends the batch again.
	p.SetFault(storetest.Fault{LoseReplies: true})
	b := s.Next(sessiontest.Acquire(3, 1))
	if _, err := store.Apply(limited(t, 300*time.Millisecond), "a", b); err == nil {
		t.Error("a reply arrived though it was lost")
	}
	p.Cut()
	p.Heal()
	r, err := store.Apply(ctx, "a", b)
	if err != nil || len(r.Results) != 2 || r.Results[1].Kind != protocol.Granted {
		t.Fatalf("%+v, %v", r, err) // the first result is that of the revocation
	}
	sessiontest.WantHeld(t, other, "a", lease, r.Results[1].Lease)
}

// TestStore_SurvivesCutConnections cuts connections under load, so that notifications are
// missed: after every cut, permits are granted again.
func TestStore_SurvivesCutConnections(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	p := storetest.NewProxy(t, server.Nodes[0].Address)
	client, err := fleet.Open(ctx, "etcd://"+p.Address+"/?prefix=cut/")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(ctx)
	s, err := client.Semaphore("jobs", 2)
	if err != nil {
		t.Fatal(err)
	}
	var counter guarded
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !done.Load() {
				permit, err := s.Acquire(ctx, 1)
				if err != nil {
					t.Error(err)
					return
				}
				counter.enter(2)
				time.Sleep(time.Millisecond)
				counter.leave()
				permit.Release()
			}
		})
	}
	for cut := range 12 {
		before, giveUp := counter.entered.Load(), time.Now().Add(time.Minute)
		for counter.entered.Load() == before && !t.Failed() {
			if time.Now().After(giveUp) {
				t.Errorf("no permit was granted in the minute after cut %d", cut)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond) // load, so that the cut meets batches and notifications
		p.Cut()
	}
	done.Store(true)
	wg.Wait()
	if over := counter.over.Load(); over > 0 {
		t.Errorf("%d of %d acquires above the capacity", over, counter.entered.Load())
	}
}

// TestListen_ReconnectsAndCatchesUp checks that a listener is notified of what it may have
// missed, also after etcd has compacted that.
func TestListen_ReconnectsAndCatchesUp(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	p := storetest.NewProxy(t, server.Nodes[0].Address)
	listener := openBy(t, Options{Endpoints: []string{p.Address}})
	other := openAt(t, server, "")
	waiter := sessiontest.Begin(t, listener, "a", protocol.Config{Capacity: 1})
	holder := sessiontest.Begin(t, other, "a", protocol.Config{Capacity: 1})
	notified := make(chan string, 100)
	listening, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = listener.Listen(listening, sessiontest.Instance(t), func(name string) { notified <- name })
	})
	defer wg.Wait()
	defer stop()
	lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
	waiter.Send(sessiontest.Acquire(1, 1))
	for len(server.Etcdctl("get", "--keys-only", "--prefix", "sema/notify/")) == 0 {
		time.Sleep(10 * time.Millisecond)
	}

	p.SetFault(storetest.Fault{Reject: true})
	p.Cut()
	holder.Send(sessiontest.Release(lease)) // the notification of this is missed
	server.Compact()
	time.Sleep(50 * time.Millisecond)
	p.Heal()
	select {
	case name := <-notified:
		if name != "a" {
			t.Errorf("notified of %q, want a", name)
		}
	case <-time.After(time.Minute):
		t.Fatal("no notification of what was missed")
	}
	// Later notifications arrive, too.
	again := waiter.Granted(1)[0]
	holder.Send(sessiontest.Acquire(2, 1))
	waiter.Send(sessiontest.Release(again))
	third := holder.Granted(1)[0]
	waiter.Send(sessiontest.Acquire(2, 1))
	for len(notified) > 0 {
		<-notified
	}
	holder.Send(sessiontest.Release(third))
	select {
	case <-notified:
	case <-time.After(time.Minute):
		t.Fatal("no notification after the reconnect")
	}
}

// TestStore_ReportsAFullDatabase checks also that requests succeed when there is room again.
func TestStore_ReportsAFullDatabase(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1, "--quota-backend-bytes", fmt.Sprint(4<<20))
	store := openAt(t, server, "")
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 3})
	lease := s.Granted(1, sessiontest.Acquire(1, 1))[0]
	client, err := store.connection.client(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil && i < 100; i++ {
		_, err = client.Put(ctx, "filler", strings.Repeat("x", 500<<10))
	}
	b := s.Next(sessiontest.Acquire(2, 1))
	_, err = store.Apply(ctx, "a", b)
	storetest.WantError(t, err, "database is full", "etcdctl alarm disarm")
	if !errors.Is(err, fleet.FaultFull) || !errors.Is(err, sema.ErrUnavailable) {
		t.Errorf("%v is not FaultFull and ErrUnavailable", err)
	}
	sessiontest.WantHeld(t, store, "a", lease) // reads succeed

	server.Compact()
	server.Etcdctl("defrag")
	server.Etcdctl("alarm", "disarm")
	reply, err := store.Apply(ctx, "a", b)
	if err != nil || len(reply.Results) != 1 || reply.Results[0].Kind != protocol.Granted {
		t.Errorf("%+v, %v", reply, err)
	}
}
