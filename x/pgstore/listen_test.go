package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

// hear has an instance listen until the test ends, and tells what it hears.
func hear(t *testing.T, s *Store, instance string) <-chan string {
	t.Helper()
	listening, cancel := context.WithCancel(ctx)
	heard, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Listen(listening, instance, func(name string) { heard <- name })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return heard
}

// A relay is two instances that hand one permit to and fro.
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

// hand has a hold the permit and give it to b, and b give it up.
func (r *relay) hand(ticket protocol.Ticket, between func()) {
	lease := r.a.Granted(1, sessiontest.Acquire(ticket, 1))[0]
	r.b.Say(sessiontest.Acquire(ticket, 1))
	r.a.Say(sessiontest.Release(lease))
	between()
	r.b.Say(sessiontest.Release(r.b.Granted(1)[0]))
}

func wantHint(t *testing.T, heard <-chan string, name string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != name {
			t.Errorf("hinted at %q, want %q", got, name)
		}
	case <-time.After(time.Minute):
		t.Fatal("there is no hint")
	}
}

// ready hands until somebody hears of it: a subscription takes some time.
func (r *relay) ready(t *testing.T, heard <-chan string) protocol.Ticket {
	t.Helper()
	ticket := protocol.Ticket(1)
	for ; ; ticket++ {
		got := false
		r.hand(ticket, func() {
			select {
			case <-heard:
				got = true
			case <-time.After(50 * time.Millisecond):
			}
		})
		if got {
			break
		}
	}
	time.Sleep(50 * time.Millisecond)
	for len(heard) > 0 {
		<-heard
	}
	return ticket + 1
}

func TestAListenerThatIsCutOffListensAgain(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{Prefix: "p:"})
	heard := hear(t, store, "b")
	r := newRelay(t, store, "x")
	ticket := r.ready(t, heard)
	for i := range protocol.Ticket(3) {
		r.hand(ticket+2*i, func() { wantHint(t, heard, "x") })
		// What happens while it is away is told when it is back.
		lease := r.a.Granted(1, sessiontest.Acquire(ticket+2*i+1, 1))[0]
		r.b.Say(sessiontest.Acquire(ticket+2*i+1, 1))
		waitFor(t, func() bool {
			return count(t, store, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '"+listenerName+"' AND query LIKE '%"+store.options.Schema+"%'") > 0
		})
		r.a.Say(sessiontest.Release(lease))
		wantHint(t, heard, "x")
		r.b.Say(sessiontest.Release(r.b.Granted(1)[0]))
		ticket++
		time.Sleep(100 * time.Millisecond)
		for len(heard) > 0 {
			<-heard
		}
	}
}

func TestWithoutListenOneLooks(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{Listen: listenPoll, Poll: 20 * time.Millisecond})
	heard := hear(t, store, "b")
	r := newRelay(t, store, "x")
	ticket := r.ready(t, heard)
	for i := range protocol.Ticket(3) {
		r.hand(ticket+i, func() {
			wantHint(t, heard, "x")
			time.Sleep(100 * time.Millisecond) // in which it looks again, and tells nothing twice
			if len(heard) > 0 {
				t.Error("the same news is told again")
			}
		})
	}
	if n := count(t, store, "SELECT count(*) FROM pg_stat_activity WHERE application_name = '"+listenerName+"' AND query LIKE '%"+store.options.Schema+"%'"); n > 0 {
		t.Error("somebody listens all the same")
	}
}

func TestTheOneWhoIsAnsweredIsNotHinted(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	heard := hear(t, store, "b")
	r := newRelay(t, store, "x")
	ticket := r.ready(t, heard)
	for i := range protocol.Ticket(5) {
		lease := r.b.Granted(1, sessiontest.Acquire(ticket+2*i, 1))[0]
		r.b.Say(sessiontest.Acquire(ticket+2*i+1, 1))
		r.b.Say(sessiontest.Release(r.b.Granted(1, sessiontest.Release(lease))[0])) // which serves its own ticket
	}
	time.Sleep(200 * time.Millisecond)
	if len(heard) > 0 {
		t.Errorf("it was told of %q, of which it knew", <-heard)
	}
}

func TestListeningEndsPromptly(t *testing.T) {
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
