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

// hold makes each commit wait until a result is sent to the channel end: an error, or
// nil. The function free ends that.
func hold(s *Store) (end chan<- error, free func()) {
	ends, w := make(chan error), &s.shared.writer
	w.beforeCommit = func() error { return <-ends }
	return ends, func() { w.beforeCommit = nil }
}

func TestWriter_RepliesAfterTheCommit(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store := openAt(t, path, Options{})
		holder, waiter := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}), sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
		lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
		waiter.Send(sessiontest.Acquire(1, 1))

		var received []string
		var mu sync.Mutex
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			received = append(received, what)
		}
		listening, stop := context.WithCancel(ctx)
		defer stop()
		go store.Listen(listening, sessiontest.Instance(t), func(string) { note("notification") })
		synctest.Wait()

		end, free := hold(store)
		b := holder.Next(sessiontest.Release(lease))
		go func() { store.Apply(ctx, "a", b); note("reply") }()
		synctest.Wait()
		go func() { store.Inspect(ctx, "a"); note("inspect") }()
		go func() { store.List(ctx, protocol.ListQuery{}); note("list") }()
		go func() { store.Apply(ctx, "a", waiter.Next(sessiontest.Acquire(9, 1))); note("other") }()
		synctest.Wait()
		if len(received) > 0 {
			t.Errorf("received %q before the commit, want nothing", received)
		}
		end <- nil
		synctest.Wait()
		if len(received) != 2 {
			t.Errorf("received %q after the commit, want the reply and the notification", received)
		}
		end <- nil
		free()
		synctest.Wait()
		if len(received) != 5 {
			t.Errorf("received %q after both commits, want all five", received)
		}
	})
}

func TestWriter_GroupCommit(t *testing.T) {
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
		before := store.shared.writer.commits
		var wg sync.WaitGroup
		for _, s := range sessions {
			wg.Go(func() { s.Granted(1, sessiontest.Acquire(1, 1)) })
			synctest.Wait()
		}
		end <- nil
		end <- nil
		free()
		wg.Wait()
		if got := store.shared.writer.commits - before; got != 2 {
			t.Errorf("%d commits for %d batches, want 2: the one that was held, and one for all that arrived meanwhile", got, many)
		}
	})
}

func TestWriter_GroupsAreBounded(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store := openAt(t, path, Options{})
		s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1 << 20})
		end, free := hold(store)
		before := store.shared.writer.commits
		var wg sync.WaitGroup
		send := func(b protocol.Batch) {
			wg.Go(func() { store.Apply(ctx, "a", b) })
			synctest.Wait()
		}
		send(s.Next(sessiontest.Acquire(1, 1)))
		for range 3 {
			s.Seq++
			b := protocol.Batch{Owner: sessiontest.Owner, Session: s.ID, Seq: s.Seq, Ops: make([]protocol.Op, maxSize)}
			send(b)
		}
		for range 4 {
			end <- nil
		}
		free()
		wg.Wait()
		if got := store.shared.writer.commits - before; got != 4 {
			t.Errorf("%d commits, want 4: a batch of %d ops fills a group", got, maxSize)
		}
	})
}

func TestStore_DeleteRemovesAllRows(t *testing.T) {
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
			s.Send(sessiontest.Acquire(2, 1))
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
		end <- nil // of the delete and the open together
		free()
		wg.Wait()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		store = openAt(t, path, Options{})
		snapshot, err := store.Inspect(ctx, "a")
		if err != nil || snapshot.Config.Capacity != 7 || snapshot.InUse != 0 || len(snapshot.Queue) != 0 || len(snapshot.Sessions) != 1 {
			t.Errorf("new semaphore %+v, %v", snapshot, err)
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

func TestWriter_FailedCommitChangesNothing(t *testing.T) {
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
		end <- nil     // the first commit
		end <- errTest // the commit of all that arrived meanwhile
		wg.Wait()
		free()

		sessiontest.WantHeld(t, store, "a", leaseA)
		sessiontest.WantHeld(t, store, "b", leaseB)
		if _, err := store.Inspect(ctx, "new"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Inspect of a semaphore that was not committed: %v", err)
		}
		// The batch is applied now, as if it had never been received.
		if r, err := store.Apply(ctx, "a", batchA); err != nil || r.Status != protocol.Applied {
			t.Errorf("status %d, %v after a failed commit", r.Status, err)
		}
		if r, err := store.Apply(ctx, "b", batchB); err != nil || r.Status != protocol.Applied {
			t.Errorf("status %d, %v after a failed commit", r.Status, err)
		}
	})
}
