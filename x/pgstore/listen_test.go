package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

// listenAs makes an instance listen until the test ends, and returns its notifications.
func listenAs(t *testing.T, s *Store, instance string) <-chan string {
	t.Helper()
	listening, cancel := context.WithCancel(ctx)
	notified, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Listen(listening, instance, func(name string) { notified <- name })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return notified
}

// A relay passes one permit between two instances.
type relay struct{ a, b *sessiontest.Session }

func newRelay(t *testing.T, s *Store, name string) *relay {
	open := func(instance string) *sessiontest.Session {
		id, _, err := s.Open(ctx, name, protocol.Config{Capacity: 1, TTL: protocol.Micros(time.Hour / time.Microsecond)}, sessiontest.Opener(instance))
		if err != nil {
			t.Fatal(err)
		}
		return sessiontest.Opened(t, s, name, id)
	}
	return &relay{open("a"), open("b")}
}

// handOver acquires the permit for a, queues b, and releases the permit, which is granted
// to b. It calls between, and then releases the permit of b.
func (r *relay) handOver(ticket protocol.Ticket, between func()) {
	lease := r.a.Granted(1, sessiontest.Acquire(ticket, 1))[0]
	r.b.Send(sessiontest.Acquire(ticket, 1))
	r.a.Send(sessiontest.Release(lease))
	between()
	r.b.Send(sessiontest.Release(r.b.Granted(1)[0]))
}

func wantNotification(t *testing.T, notified <-chan string, name string) {
	t.Helper()
	select {
	case got := <-notified:
		if got != name {
			t.Errorf("notified of %q, want %q", got, name)
		}
	case <-time.After(time.Minute):
		t.Fatal("no notification within a minute")
	}
}

// ready passes the permit until there is a notification: a subscription takes some time.
func (r *relay) ready(t *testing.T, notified <-chan string) protocol.Ticket {
	t.Helper()
	ticket := protocol.Ticket(1)
	for ; ; ticket++ {
		got := false
		r.handOver(ticket, func() {
			select {
			case <-notified:
				got = true
			case <-time.After(50 * time.Millisecond):
			}
		})
		if got {
			break
		}
	}
	time.Sleep(50 * time.Millisecond)
	for len(notified) > 0 {
		<-notified
	}
	return ticket + 1
}

func TestListen_ReconnectsAndCatchesUp(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{Prefix: "p:"})
	notified := listenAs(t, store, "b")
	r := newRelay(t, store, "x")
	ticket := r.ready(t, notified)
	for i := range protocol.Ticket(3) {
		r.handOver(ticket+2*i, func() { wantNotification(t, notified, "x") })
		// A change while there is no connection is passed on after it is open again.
		lease := r.a.Granted(1, sessiontest.Acquire(ticket+2*i+1, 1))[0]
		r.b.Send(sessiontest.Acquire(ticket+2*i+1, 1))
		waitFor(t, func() bool {
			return count(t, store, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '"+listenerName+"' AND query LIKE '%"+store.options.Schema+"%'") > 0
		})
		r.a.Send(sessiontest.Release(lease))
		wantNotification(t, notified, "x")
		r.b.Send(sessiontest.Release(r.b.Granted(1)[0]))
		ticket++
		time.Sleep(100 * time.Millisecond)
		for len(notified) > 0 {
			<-notified
		}
	}
}

func TestListen_Polls(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{Listen: listenPoll, Poll: 20 * time.Millisecond})
	notified := listenAs(t, store, "b")
	r := newRelay(t, store, "x")
	ticket := r.ready(t, notified)
	for i := range protocol.Ticket(3) {
		r.handOver(ticket+i, func() {
			wantNotification(t, notified, "x")
			time.Sleep(100 * time.Millisecond) // it polls again, and passes nothing on twice
			if len(notified) > 0 {
				t.Error("the same notification arrives twice")
			}
		})
	}
	if n := count(t, store, "SELECT count(*) FROM pg_stat_activity WHERE application_name = '"+listenerName+"' AND query LIKE '%"+store.options.Schema+"%'"); n > 0 {
		t.Error("there is a listening connection")
	}
}

func TestListen_OmitsWhatTheReplyHas(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	notified := listenAs(t, store, "b")
	r := newRelay(t, store, "x")
	ticket := r.ready(t, notified)
	for i := range protocol.Ticket(5) {
		lease := r.b.Granted(1, sessiontest.Acquire(ticket+2*i, 1))[0]
		r.b.Send(sessiontest.Acquire(ticket+2*i+1, 1))
		r.b.Send(sessiontest.Release(r.b.Granted(1, sessiontest.Release(lease))[0])) // which serves its own ticket
	}
	time.Sleep(200 * time.Millisecond)
	if len(notified) > 0 {
		t.Errorf("notified of %q, which the reply had", <-notified)
	}
}

func TestListen_EndsPromptly(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Listen: listenPoll, Poll: time.Hour}, {Listen: "127.0.0.1:1"}} {
		store := openIn(t, newSchema(), o)
		cause := errors.New("over")
		listening, cancel := context.WithCancelCause(ctx)
		done := make(chan error)
		go func() { done <- store.Listen(listening, "i", func(string) {}) }()
		time.Sleep(50 * time.Millisecond)
		began := time.Now()
		cancel(cause)
		if err := <-done; !errors.Is(err, cause) || time.Since(began) > time.Minute {
			t.Errorf("%+v: %v after %v", o, err, time.Since(began))
		}
		go func() { done <- store.Listen(ctx, "i", func(string) {}) }()
		time.Sleep(50 * time.Millisecond)
		store.Close()
		if err := <-done; !errors.Is(err, errClosed) {
			t.Errorf("%+v: after Close %v", o, err)
		}
		if _, err := store.Inspect(ctx, "x"); !errors.Is(err, errClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}
