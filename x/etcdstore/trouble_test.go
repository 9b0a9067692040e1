package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/etcdtest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// limited is a context for calls that fail.
func limited(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	t.Cleanup(cancel)
	return ctx
}

func TestNobodyIsThere(t *testing.T) {
	t.Parallel()
	store := openBy(t, Options{Endpoints: []string{"127.0.0.1:1"}, Password: "hush"})
	_, err := store.Inspect(limited(t, 30*time.Second), "a")
	wantError(t, err, "cannot reach etcd at 127.0.0.1:1: connection refused; is it running?")
	_, err = store.List(limited(t, 30*time.Second), protocol.ListQuery{})
	wantError(t, err, "connection refused")
	secret := openBy(t, Options{Endpoints: []string{"127.0.0.1:1"}, User: "me", Password: "hush"})
	_, err = secret.Inspect(limited(t, 30*time.Second), "a")
	wantError(t, err, "127.0.0.1:1")
	if strings.Contains(err.Error(), "hush") {
		t.Errorf("the password is in %q", err)
	}
}

func TestClosed(t *testing.T) {
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
	wantError(t, <-listened, "closed")
	_, err := store.Inspect(ctx, "a")
	wantError(t, err, "closed")
	_, err = store.List(ctx, protocol.ListQuery{})
	wantError(t, err, "closed")
}

// TestAPanicSpoilsNothing: whoever called is told, and the semaphore is read
// again.
func TestAPanicSpoilsNothing(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store := openAt(t, server, "")
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	lease := s.Granted(1, sessiontest.Acquire(1, 1))[0]
	o := store.do("a", &call{ctx: ctx, act: func(now protocol.Micros, v *view) outcome {
		v.state.Apply(now, protocol.Batch{Owner: sessiontest.Owner, Session: s.ID, Seq: 99, End: true})
		panic("broken by the test")
	}})
	wantError(t, o.err, "panic: broken by the test")
	sessiontest.WantHeld(t, store, "a", lease)
	s.Say(sessiontest.Release(lease))
}

// TestTheServerIsRestarted kills it in the middle of batches, again and again.
func TestTheServerIsRestarted(t *testing.T) {
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
			failures++ // it is said again as it was
			time.Sleep(5 * time.Millisecond)
		}
		if r.Status != protocol.Applied && r.Status != protocol.Repeated || len(r.Results) != 1 || r.Results[0].Kind != protocol.Granted {
			t.Fatalf("batch %d: %+v", n, r)
		}
		held = r.Results[0].Lease
		s.Hear(r)
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

// TestTheAnswerIsLost: what was written, and not heard of, is not written again.
func TestTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	p := enginetest.NewProxy(t, server.Nodes[0].Address)
	store := openBy(t, Options{Endpoints: []string{p.Address}})
	other := openAt(t, server, "")
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 5})
	lease := s.Granted(1, sessiontest.Acquire(1, 1))[0]

	// The same call goes on until it knows.
	p.SetFault(enginetest.Fault{LoseReplies: true})
	time.AfterFunc(500*time.Millisecond, func() {
		p.Cut()
		p.Heal()
	})
	second := s.Granted(1, sessiontest.Acquire(2, 1))[0]
	if p.Lost() == 0 {
		t.Error("no answer was lost")
	}
	sessiontest.WantHeld(t, other, "a", lease, second)

	// So it is for what cannot be repeated.
	p.SetFault(enginetest.Fault{LoseReplies: true})
	time.AfterFunc(500*time.Millisecond, func() {
		p.Cut()
		p.Heal()
	})
	if err := store.Administer(ctx, "a", fleet.Command{Revoke: &fleet.Revocation{Lease: second, AtOnce: true}}); err != nil {
		t.Errorf("what was done is not known to be: %v", err)
	}
	sessiontest.WantHeld(t, other, "a", lease)

	// A caller who gives up says it again.
	p.SetFault(enginetest.Fault{LoseReplies: true})
	b := s.Next(sessiontest.Acquire(3, 1))
	if _, err := store.Apply(limited(t, 300*time.Millisecond), "a", b); err == nil {
		t.Error("an answer came though it was lost")
	}
	p.Cut()
	p.Heal()
	r, err := store.Apply(ctx, "a", b)
	if err != nil || len(r.Results) != 2 || r.Results[1].Kind != protocol.Granted {
		t.Fatalf("%+v, %v", r, err) // the first is that of the revocation
	}
	sessiontest.WantHeld(t, other, "a", lease, r.Results[1].Lease)
}

// TestConnectionsAreCut while many work, and hints get lost.
func TestConnectionsAreCut(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	p := enginetest.NewProxy(t, server.Nodes[0].Address)
	client, err := fleet.Open(ctx, "etcd://"+p.Address+"/?prefix=cut/")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(ctx)
	s, err := client.Semaphore("jobs", 2, fleet.TTL(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var counter guarded
	var wg sync.WaitGroup
	end := time.Now().Add(2 * time.Second)
	for range 8 {
		wg.Go(func() {
			for time.Now().Before(end) {
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
	for time.Now().Before(end) {
		time.Sleep(150 * time.Millisecond)
		p.Cut()
	}
	wg.Wait()
	if counter.over.Load() > 0 || counter.entered.Load() < 20 {
		t.Errorf("%d were let in, %d times too many at once", counter.entered.Load(), counter.over.Load())
	}
}

// TestListenersComeBack, and are told what they may have missed, also when etcd
// has forgotten what that was.
func TestListenersComeBack(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	p := enginetest.NewProxy(t, server.Nodes[0].Address)
	deaf := openBy(t, Options{Endpoints: []string{p.Address}})
	other := openAt(t, server, "")
	waiter := sessiontest.Begin(t, deaf, "a", protocol.Config{Capacity: 1})
	holder := sessiontest.Begin(t, other, "a", protocol.Config{Capacity: 1})
	heard := make(chan string, 100)
	listening, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = deaf.Listen(listening, sessiontest.Instance(t), func(name string) { heard <- name }) })
	defer wg.Wait()
	defer stop()
	lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
	waiter.Say(sessiontest.Acquire(1, 1))
	for len(server.Etcdctl("get", "--keys-only", "--prefix", "sema/notify/")) == 0 {
		time.Sleep(10 * time.Millisecond)
	}

	p.SetFault(enginetest.Fault{Refuse: true})
	p.Cut()
	holder.Say(sessiontest.Release(lease)) // of which it is told, and does not hear
	server.Compact()
	time.Sleep(50 * time.Millisecond)
	p.Heal()
	select {
	case name := <-heard:
		if name != "a" {
			t.Errorf("told of %q", name)
		}
	case <-time.After(time.Minute):
		t.Fatal("it was not told of what it missed")
	}
	// And of what is new.
	again := waiter.Granted(1)[0]
	holder.Say(sessiontest.Acquire(2, 1))
	waiter.Say(sessiontest.Release(again))
	third := holder.Granted(1)[0]
	waiter.Say(sessiontest.Acquire(2, 1))
	for len(heard) > 0 {
		<-heard
	}
	holder.Say(sessiontest.Release(third))
	select {
	case <-heard:
	case <-time.After(time.Minute):
		t.Fatal("it was not told of news")
	}
}

// TestTheDatabaseIsFull: requests fail and say why, and go on when there is room.
func TestTheDatabaseIsFull(t *testing.T) {
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
	wantError(t, err, "database is full", "etcdctl alarm disarm")
	if !errors.Is(err, fleet.FaultFull) || !errors.Is(err, sema.ErrUnavailable) {
		t.Errorf("%v is not FaultFull and ErrUnavailable", err)
	}
	sessiontest.WantHeld(t, store, "a", lease) // reading goes on

	server.Compact()
	server.Etcdctl("defrag")
	server.Etcdctl("alarm", "disarm")
	reply, err := store.Apply(ctx, "a", b)
	if err != nil || len(reply.Results) != 1 || reply.Results[0].Kind != protocol.Granted {
		t.Errorf("%+v, %v", reply, err)
	}
}
