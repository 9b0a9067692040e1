package sqlitestore

import (
	"context"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

const hour protocol.Micros = 3600 * 1_000_000

// A steppable clock is the engine's, in a test.
type steppable struct{ now protocol.Micros }

func (c *steppable) drive(s *Store) { s.useClock(func() protocol.Micros { return c.now }) }

// useClock replaces the clock of a store, which then looks at it only when it is asked.
func (s *Store) useClock(now func() protocol.Micros) {
	w := &s.engine.writer
	_ = s.await(context.Background(), &request{ctx: context.Background(), size: 1, read: func(*file) error {
		w.now, w.still = now, true
		return nil
	}})
}

func TestAClockThatStepsRobsNobody(t *testing.T) {
	t.Parallel()
	for _, step := range []protocol.Micros{hour, -hour} {
		store, clock := openAt(t, newFile(t), Options{}), steppable{1_700_000_000_000_000}
		clock.drive(store)
		holder, waiter := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}), sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
		lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
		waiter.Say(sessiontest.Acquire(1, 1))
		for range 6 { // one step in each heartbeat
			clock.now += sessiontest.TTL/3 + step
			waiter.Granted(0)
			holder.Say()
		}
		sessiontest.WantHeld(t, store, "a", lease)

		// And who is silent is noticed, as if the clock had not stepped.
		passed := protocol.Micros(0)
		for len(waiter.Say().Results) == 0 {
			clock.now += sessiontest.TTL / 6
			if passed += sessiontest.TTL / 6; passed > 2*sessiontest.TTL {
				t.Fatal("a dead holder was not noticed")
			}
		}
		if passed < sessiontest.TTL*5/6 {
			t.Errorf("the holder was dead after %d of a TTL of %d", passed, sessiontest.TTL)
		}
	}
}

func TestWhoLivedWhenTheEngineStoppedLivesWhenItIsBack(t *testing.T) {
	t.Parallel()
	for _, away := range []protocol.Micros{sessiontest.TTL / 2, sessiontest.TTL, hour, -hour} {
		path, clock := newFile(t), steppable{1_700_000_000_000_000}
		store, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		clock.drive(store)
		holder, waiter := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}), sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
		lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
		waiter.Say(sessiontest.Acquire(1, 1))
		clock.now += sessiontest.TTL / 3
		waiter.Say() // that time has passed is known, and the holder is silent for a third
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}

		clock.now += away
		store = openAt(t, path, Options{})
		clock.drive(store)
		holder.Store, waiter.Store = store, store
		for range 2 { // whatever others say first
			waiter.Granted(0)
			sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}).Granted(0, sessiontest.Acquire(1, 1))
		}
		holder.Say()
		sessiontest.WantHeld(t, store, "a", lease)
		holder.Say(sessiontest.Release(lease))
		waiter.Granted(1)
	}
}

func TestTheDeadAreNoticedThoughTheEngineComesBackAgainAndAgain(t *testing.T) {
	t.Parallel()
	path, clock := newFile(t), steppable{1_700_000_000_000_000}
	var waiter *sessiontest.Session
	for life := 0; ; life++ {
		store, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		clock.drive(store)
		if life == 0 {
			sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1)) // and is silent from now on
			waiter = sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
			waiter.Say(sessiontest.Acquire(1, 1))
		}
		waiter.Store = store
		served := false
		for range 3 {
			clock.now += sessiontest.TTL / 6
			served = served || len(waiter.Say().Results) > 0
		}
		store.engine.writer.forget() // as a crash does
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if served {
			return
		}
		if life > 20 {
			t.Fatal("a holder has been dead for ten TTLs, and holds")
		}
	}
}

func TestFencesOfADeletedNameDoNotComeBack(t *testing.T) {
	t.Parallel()
	path, clock := newFile(t), steppable{1_700_000_000_000_000}
	var last protocol.Seq
	for range 3 {
		store, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		clock.drive(store)
		for range 2 { // lives in one process
			lease := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))[0]
			if lease <= last {
				t.Errorf("lease %d comes after %d", lease, last)
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

func TestSignsOfLifeAreNotWrittenAndNobodyIsRobbedOfThem(t *testing.T) {
	t.Parallel()
	path, clock := newFile(t), steppable{1_700_000_000_000_000}
	store, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	clock.drive(store)
	holder, waiter := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}), sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
	waiter.Say(sessiontest.Acquire(1, 1))
	before := store.engine.writer.commits
	for range 30 { // ten TTLs
		clock.now += sessiontest.TTL / 3
		holder.Say()
		waiter.Granted(0)
	}
	if got := store.engine.writer.commits - before; got != 0 {
		t.Errorf("%d commits for signs of life", got)
	}
	store.engine.writer.forget() // as a crash does: nothing is written at the end
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store = openAt(t, path, Options{})
	clock.drive(store)
	holder.Store, waiter.Store = store, store
	for range 4 { // two thirds of a TTL in which the holder does not reach the engine
		clock.now += sessiontest.TTL / 6
		waiter.Granted(0)
	}
	holder.Say()
	sessiontest.WantHeld(t, store, "a", lease)
}
