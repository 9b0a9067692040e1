package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

// hold has each commit from now on wait until it is told how to end: with an
// error, or with nil. The second function ends that.
func hold(s *Store) (end chan<- error, free func()) {
	ends, w := make(chan error), &s.engine.writer
	w.beforeCommit = func() error { return <-ends }
	return ends, func() { w.beforeCommit = nil }
}

func TestNobodyHearsOfWhatIsNotCommitted(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store := openAt(t, path, Options{})
		holder, waiter := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}), sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
		lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
		waiter.Say(sessiontest.Acquire(1, 1))

		var heard []string
		var mu sync.Mutex
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, what)
		}
		listening, stop := context.WithCancel(ctx)
		defer stop()
		go store.Listen(listening, sessiontest.Instance(t), func(string) { note("hint") })
		synctest.Wait()

		end, free := hold(store)
		b := holder.Next(sessiontest.Release(lease))
		go func() { store.Apply(ctx, "a", b); note("reply") }()
		synctest.Wait()
		go func() { store.Inspect(ctx, "a"); note("inspect") }()
		go func() { store.List(ctx, protocol.ListQuery{}); note("list") }()
		go func() { store.Apply(ctx, "a", waiter.Next(sessiontest.Acquire(9, 1))); note("other") }()
		synctest.Wait()
		if len(heard) > 0 {
			t.Errorf("before the commit there was %q", heard)
		}
		end <- nil
		synctest.Wait()
		if len(heard) != 2 {
			t.Errorf("after the commit there was %q, want the reply and the hint", heard)
		}
		end <- nil
		free()
		synctest.Wait()
		if len(heard) != 5 {
			t.Errorf("after both commits there was %q, want all five", heard)
		}
	})
}

func TestRequestsThatArriveDuringACommitShareTheNext(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store := openAt(t, path, Options{})
		const many = 300
		var sessions []*sessiontest.Session
		for i := range many {
			sessions = append(sessions, sessiontest.Begin(t, store, fmt.Sprint("s", i%7), protocol.Config{Capacity: many}))
		}
		end, free := hold(store)
		before := store.engine.writer.commits
		var wg sync.WaitGroup
		for _, s := range sessions {
			wg.Go(func() { s.Granted(1, sessiontest.Acquire(1, 1)) })
			synctest.Wait()
		}
		end <- nil
		end <- nil
		free()
		wg.Wait()
		if got := store.engine.writer.commits - before; got != 2 {
			t.Errorf("%d commits for %d batches, want 2: the one that was held, and one for all who came meanwhile", got, many)
		}
	})
}

func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store := openAt(t, path, Options{})
		s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1 << 20})
		end, free := hold(store)
		before := store.engine.writer.commits
		var wg sync.WaitGroup
		say := func(b protocol.Batch) {
			wg.Go(func() { store.Apply(ctx, "a", b) })
			synctest.Wait()
		}
		say(s.Next(sessiontest.Acquire(1, 1)))
		for range 3 {
			s.Seq++
			b := protocol.Batch{Owner: sessiontest.Owner, Session: s.ID, Seq: s.Seq, Ops: make([]protocol.Op, maxSize)}
			say(b)
		}
		for range 4 {
			end <- nil
		}
		free()
		wg.Wait()
		if got := store.engine.writer.commits - before; got != 4 {
			t.Errorf("%d commits, want 4: a batch of %d ops fills a group", got, maxSize)
		}
	})
}

func TestNothingIsLeftOfADeletedSemaphore(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		live := func() {
			s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
			s.Granted(1, sessiontest.Acquire(1, 1))
			s.Say(sessiontest.Acquire(2, 1))
		}
		live()
		end, free := hold(store)
		var wg sync.WaitGroup
		wg.Go(func() { sessiontest.Begin(t, store, "other", protocol.Config{}) })
		synctest.Wait()
		wg.Go(func() { store.Administer(ctx, "a", fleet.Command{Delete: true}) })
		synctest.Wait()
		wg.Go(func() { sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 7}) })
		synctest.Wait()
		end <- nil
		end <- nil // of the end and the new beginning at once
		free()
		wg.Wait()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		store = openAt(t, path, Options{})
		snapshot, err := store.Inspect(ctx, "a")
		if err != nil || snapshot.Config.Capacity != 7 || snapshot.InUse != 0 || len(snapshot.Queue) != 0 || len(snapshot.Sessions) != 1 {
			t.Errorf("a new semaphore is %+v, %v", snapshot, err)
		}

		for _, name := range []string{"a", "other"} {
			if err := store.Administer(ctx, name, fleet.Command{Delete: true}); err != nil {
				t.Fatal(err)
			}
		}
		var left int64
		err = store.await(ctx, &request{ctx: ctx, read: func(f *file) error {
			return f.query(`SELECT (SELECT count(*) FROM semaphore) + (SELECT count(*) FROM session) + (SELECT count(*) FROM lease)
				+ (SELECT count(*) FROM ticket) + (SELECT count(*) FROM spending)`, func(r *row) { left = r.integer() })
		}})
		if err != nil || left > 0 {
			t.Errorf("%d rows are left, %v", left, err)
		}
	})
}

func TestAFailedCommitIsAsIfNothingHadBeenAsked(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store := openAt(t, path, Options{})
		a, b := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 2}), sessiontest.Begin(t, store, "b", protocol.Config{Capacity: 2})
		leaseA, leaseB := a.Granted(1, sessiontest.Acquire(1, 1))[0], b.Granted(1, sessiontest.Acquire(1, 1))[0]

		end, free := hold(store)
		var wg sync.WaitGroup
		wg.Go(func() { sessiontest.Begin(t, store, "other", protocol.Config{}) })
		synctest.Wait()
		batchA, batchB := a.Next(sessiontest.Release(leaseA), sessiontest.Acquire(2, 1)), b.Next(sessiontest.Acquire(2, 1))
		for what, do := range map[string]func() error{
			"a": func() error { _, err := store.Apply(ctx, "a", batchA); return err },
			"b": func() error { _, err := store.Apply(ctx, "b", batchB); return err },
			"new": func() error {
				_, _, err := store.Open(ctx, "new", protocol.Config{TTL: sessiontest.TTL, Protocol: protocol.Version}, sessiontest.Opener("x"))
				return err
			},
			"delete":  func() error { return store.Administer(ctx, "b", fleet.Command{Delete: true}) },
			"inspect": func() error { _, err := store.Inspect(ctx, "a"); return err },
			"list":    func() error { _, err := store.List(ctx, protocol.ListQuery{}); return err },
		} {
			wg.Go(func() {
				if err := do(); !errors.Is(err, errTest) || !strings.Contains(err.Error(), path) {
					t.Errorf("%s: %v, want %v and the file", what, err, errTest)
				}
			})
		}
		synctest.Wait()
		end <- nil     // of the one that was there
		end <- errTest // of all who came meanwhile
		wg.Wait()
		free()

		sessiontest.WantHeld(t, store, "a", leaseA)
		sessiontest.WantHeld(t, store, "b", leaseB)
		if _, err := store.Inspect(ctx, "new"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a semaphore that was not committed: %v", err)
		}
		// As if it had never been heard, the batch is heard now.
		if r, err := store.Apply(ctx, "a", batchA); err != nil || r.Status != protocol.Applied {
			t.Errorf("status %d, %v after a commit that failed", r.Status, err)
		}
		if r, err := store.Apply(ctx, "b", batchB); err != nil || r.Status != protocol.Applied {
			t.Errorf("status %d, %v after a commit that failed", r.Status, err)
		}
	})
}
