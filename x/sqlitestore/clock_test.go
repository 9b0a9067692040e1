package sqlitestore

import (
	"context"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

const hour protocol.Micros = 3600 * 1_000_000

// A steppedClock is a clock that a test sets.
type steppedClock struct{ now protocol.Micros }

func (c *steppedClock) drive(s *Store) { s.useClock(func() protocol.Micros { return c.now }) }

// useClock replaces the clock of a store, which then reads it only for requests.
func (s *Store) useClock(now func() protocol.Micros) {
	w := &s.shared.writer
	_ = s.await(context.Background(), &request{ctx: context.Background(), size: 1, read: func(*file) error {
		w.now, w.manualClock = now, true
		return nil
	}})
}

func TestStore_ClockStepsExpireNoLiveSession(t *testing.T) {
	t.Parallel()
	for _, step := range []protocol.Micros{hour, -hour} {
		store, clock := openAt(t, newFile(t), Options{}), steppedClock{1_700_000_000_000_000}
		clock.drive(store)
		holder, waiter := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}), sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
		lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
		waiter.Send(sessiontest.Acquire(1, 1))
		for range 6 { // one step in each heartbeat
			clock.now += sessiontest.TTL/3 + step
			waiter.Granted(0)
			holder.Send()
		}
		sessiontest.WantHeld(t, store, "a", lease)

		// A session without heartbeats expires as if the clock had not stepped.
		passed := protocol.Micros(0)
		for len(waiter.Send().Results) == 0 {
			clock.now += sessiontest.TTL / 6
			if passed += sessiontest.TTL / 6; passed > 2*sessiontest.TTL {
				t.Fatal("the holder did not expire")
			}
		}
		if passed < sessiontest.TTL*5/6 {
			t.Errorf("the holder expired after %d, want the TTL of %d", passed, sessiontest.TTL)
		}
	}
}

func TestStore_LiveSessionsSurviveARestart(t *testing.T) {
	t.Parallel()
	for _, away := range []protocol.Micros{sessiontest.TTL / 2, sessiontest.TTL, hour, -hour} {
		path, clock := newFile(t), steppedClock{1_700_000_000_000_000}
		store, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		clock.drive(store)
		holder, waiter := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}), sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
		lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
		waiter.Send(sessiontest.Acquire(1, 1))
		clock.now += sessiontest.TTL / 3
		waiter.Send() // advances the clock: the holder has sent no heartbeat for a third of the TTL
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}

		clock.now += away
		store = openAt(t, path, Options{})
		clock.drive(store)
		holder.Store, waiter.Store = store, store
		for range 2 { // whatever other sessions send first
			waiter.Granted(0)
			sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}).Granted(0, sessiontest.Acquire(1, 1))
		}
		holder.Send()
		sessiontest.WantHeld(t, store, "a", lease)
		holder.Send(sessiontest.Release(lease))
		waiter.Granted(1)
	}
}

func TestStore_SessionsExpireDespiteRestarts(t *testing.T) {
	t.Parallel()
	path, clock := newFile(t), steppedClock{1_700_000_000_000_000}
	var waiter *sessiontest.Session
	for life := 0; ; life++ {
		store, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		clock.drive(store)
		if life == 0 {
			sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1)) // and sends no heartbeats from now on
			waiter = sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
			waiter.Send(sessiontest.Acquire(1, 1))
		}
		waiter.Store = store
		served := false
		for range 3 {
			clock.now += sessiontest.TTL / 6
			served = served || len(waiter.Send().Results) > 0
		}
		store.shared.writer.discardTouched() // as a crash does
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if served {
			return
		}
		if life > 20 {
			t.Fatal("the holder did not expire within ten TTLs")
		}
	}
}

func TestStore_FencesOfADeletedNameAreNotReused(t *testing.T) {
	t.Parallel()
	path, clock := newFile(t), steppedClock{1_700_000_000_000_000}
	var last protocol.Seq
	for range 3 {
		store, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		clock.drive(store)
		for range 2 { // in one process
			lease := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))[0]
			if lease <= last {
				t.Errorf("lease %d after lease %d", lease, last)
			}
			last = lease
			if err := store.Administer(ctx, "a", fleet.Command{Delete: true}); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		clock.now -= hour
	}
}

func TestStore_HeartbeatsAreNotWrittenAndStillCount(t *testing.T) {
	t.Parallel()
	path, clock := newFile(t), steppedClock{1_700_000_000_000_000}
	store, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	clock.drive(store)
	holder, waiter := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}), sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
	waiter.Send(sessiontest.Acquire(1, 1))
	before := store.shared.writer.commits
	for range 30 { // ten TTLs
		clock.now += sessiontest.TTL / 3
		holder.Send()
		waiter.Granted(0)
	}
	if got := store.shared.writer.commits - before; got != 0 {
		t.Errorf("%d commits for heartbeats, want none", got)
	}
	store.shared.writer.discardTouched() // like a crash: nothing is written at the end
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store = openAt(t, path, Options{})
	clock.drive(store)
	holder.Store, waiter.Store = store, store
	for range 4 { // two thirds of a TTL in which the holder does not reach the store
		clock.now += sessiontest.TTL / 6
		waiter.Granted(0)
	}
	holder.Send()
	sessiontest.WantHeld(t, store, "a", lease)
}
