package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

func TestStore_SurvivesADatabaseLimit(t *testing.T) {
	t.Parallel()
	store := openAt(t, newFile(t), Options{})
	limit := func(pages int) {
		// On the writer's own goroutine, like everything that uses the connection.
		err := store.await(ctx, &request{ctx: ctx, read: func(f *file) error {
			return f.exec("PRAGMA max_page_count = " + strconv.Itoa(pages))
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1 << 20})
	kept := s.Granted(1, sessiontest.Acquire(1, 1))

	limit(1) // SQLite raises it to the current number of pages
	var ops []protocol.Op
	for i := range 2000 {
		ops = append(ops, protocol.Op{Verb: protocol.Acquire, Ticket: protocol.Ticket(i + 2), Weight: 1, Details: &protocol.Details{Holder: strings.Repeat("m", 100)}})
	}
	b := s.Next(ops...)
	for range 3 {
		_, err := store.Apply(ctx, "a", b)
		if err == nil || !strings.Contains(err.Error(), "disk is full") || !strings.Contains(err.Error(), "make room") {
			t.Fatalf("on a full disk: %v", err)
		}
	}
	sessiontest.WantHeld(t, store, "a", kept...)

	limit(1 << 20)
	r, err := store.Apply(ctx, "a", b)
	if err != nil || r.Status != protocol.Applied || len(s.Receive(r).Results) != 2000 {
		t.Fatalf("with space again: %v, status %d, %d results", err, r.Status, len(r.Results))
	}
	s.Granted(1, sessiontest.Acquire(5000, 1))
}

// breakStatement makes a statement of one connection fail from now on, as it does when
// the disk fails. (The test cannot make a disk fail.)
func breakStatement(s *statement) { s.compiled = failing{s.compiled} }

// A failing statement returns errTest when it is executed.
type failing struct{ driver.Stmt }

func (failing) ExecContext(context.Context, []driver.NamedValue) (driver.Result, error) {
	return nil, errTest
}

func (failing) QueryContext(context.Context, []driver.NamedValue) (driver.Rows, error) {
	return nil, errTest
}

func TestWriter_OpensABrokenConnectionAgain(t *testing.T) {
	t.Parallel()
	store := openAt(t, newFile(t), Options{})
	w := &store.shared.writer
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 10})
	lease := s.Granted(1, sessiontest.Acquire(1, 1))[0]

	w.beforeCommit = func() error {
		w.beforeCommit = nil
		breakStatement(w.file.statements.begin)
		return errTest
	}
	b := s.Next(sessiontest.Acquire(2, 1))
	if _, err := store.Apply(ctx, "a", b); !errors.Is(err, errTest) {
		t.Fatalf("error %v, want %v", err, errTest)
	}
	open := w.open
	w.open = func() (*file, error) { return nil, errTest }
	for range 3 {
		if _, err := store.Inspect(ctx, "a"); !errors.Is(err, errTest) {
			t.Fatalf("while the file cannot be opened: %v", err)
		}
		if _, err := store.List(ctx, protocol.ListQuery{}); !errors.Is(err, errTest) {
			t.Fatalf("while the file cannot be opened: %v", err)
		}
	}
	w.open = open
	sessiontest.WantHeld(t, store, "a", lease)
	if r, err := store.Apply(ctx, "a", b); err != nil || r.Status != protocol.Applied {
		t.Fatalf("after the file was opened again: %v, status %d", err, r.Status)
	}
}

func TestWriter_RetriesAFailedLoad(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{})
	w := &store.shared.writer
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 10})
	lease := s.Granted(1, sessiontest.Acquire(1, 1))[0]
	w.beforeCommit = func() error { w.beforeCommit = nil; return errTest }
	if _, err := store.Apply(ctx, "a", s.Next(sessiontest.Acquire(2, 1))); !errors.Is(err, errTest) {
		t.Fatal(err)
	}
	s.Seq--
	breakStatement(w.file.find)
	if _, err := store.Inspect(ctx, "a"); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), `"a"`) {
		t.Fatalf("error %v does not name file and semaphore", err)
	}
	sessiontest.WantHeld(t, store, "a", lease)
	s.Send()
}

func TestStore_RejectsInvalidState(t *testing.T) {
	t.Parallel()
	for spoil, want := range map[string]string{
		"UPDATE semaphore SET config = json_set(config, '$.Invention', 1)": "Invention",
		"UPDATE semaphore SET config = 'no JSON'":                          "cannot be read",
		"UPDATE semaphore SET last_seq = 0":                                "damaged",
		"DELETE FROM session":                                              "damaged",
		"UPDATE lease SET weight = 'one'":                                  "column 3",
	} {
		path := newFile(t)
		store, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		edit(t, path, spoil)
		if store, err = Open(path, Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Inspect(ctx, "a"); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", spoil, err, want)
		}
		sessiontest.Begin(t, store, "b", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1)) // other semaphores are served
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		edit(t, path, "DELETE FROM semaphore") // as the error advises
		if store, err = Open(path, Options{}); err != nil {
			t.Fatal(err)
		}
		lease := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		sessiontest.WantHeld(t, openAt(t, path, Options{}), "a", lease...) // and nothing of the deleted semaphore
	}
}

func TestWriter_PanicAffectsOneSemaphore(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store := openAt(t, path, Options{})
		a, b := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 9}), sessiontest.Begin(t, store, "b", protocol.Config{Capacity: 9})
		lease := a.Granted(1, sessiontest.Acquire(1, 1))[0]
		end, free := hold(store)
		var wg sync.WaitGroup
		first, second := b.Next(sessiontest.Acquire(1, 1)), b.Next(sessiontest.Acquire(3, 1))
		wg.Go(func() { store.Apply(ctx, "b", first) })
		synctest.Wait()
		batch := a.Next(sessiontest.Acquire(2, 1))
		panicked := func(do func() error) {
			wg.Go(func() {
				if err := do(); err == nil || !strings.Contains(err.Error(), "panic") {
					t.Errorf("error %v, want the panic", err)
				}
			})
			synctest.Wait()
		}
		apply := func() error { _, err := store.Apply(ctx, "a", batch); return err }
		panicked(apply) // before it, in the same group
		panicked(func() error {
			return store.do(ctx, "a", 1, func(now protocol.Micros, k *entry) error {
				k.state.Apply(now, protocol.Batch{Owner: sessiontest.Owner, Session: a.ID, Seq: 99, Ops: []protocol.Op{sessiontest.Release(lease)}})
				panic(errTest)
			})
		})
		panicked(apply) // after it
		wg.Go(func() {
			if r, err := store.Apply(ctx, "b", second); err != nil || len(r.Results) != 2 {
				t.Errorf("%v, results %v, want those of both batches", err, r.Results)
			}
		})
		synctest.Wait()
		end <- nil
		end <- nil
		free()
		wg.Wait()
		sessiontest.WantHeld(t, store, "a", lease)
		if r, err := store.Apply(ctx, "a", batch); err != nil || r.Status != protocol.Applied {
			t.Errorf("afterwards: %v, status %d", err, r.Status)
		}
	})
}

func TestStore_CancelledRequestReturnsAtOnce(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store := openAt(t, path, Options{})
		s, other := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 9}), sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 9})
		end, free := hold(store)
		cancelled, cancel := context.WithCancelCause(ctx)
		var wg sync.WaitGroup
		underway, queued := s.Next(sessiontest.Acquire(1, 1)), other.Next(sessiontest.Acquire(1, 1))
		for _, b := range []protocol.Batch{underway, queued} {
			wg.Go(func() {
				if _, err := store.Apply(cancelled, "a", b); !errors.Is(err, errTest) {
					t.Errorf("error %v, want the context's cause", err)
				}
			})
			synctest.Wait()
		}
		cancel(errTest)
		wg.Wait() // although the commit is still held
		end <- nil
		free()
		synctest.Wait()
		if r, err := store.Apply(ctx, "a", underway); err != nil || r.Status != protocol.Repeated || len(r.Results) != 1 {
			t.Errorf("the batch in the commit: %v, %+v", err, r)
		}
		if r, err := store.Apply(ctx, "a", queued); err != nil || r.Status != protocol.Applied || len(r.Results) != 1 {
			t.Errorf("the queued batch: %v, %+v", err, r)
		}
	})
}

func TestStore_CancelledRequestMayReuseItsBatch(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store := openAt(t, path, Options{})
		s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 9})
		w, begun := &store.shared.writer, make(chan struct{})
		now := w.now
		w.now = func() protocol.Micros {
			w.now = now
			<-begun
			return now()
		}
		cancelled, cancel := context.WithCancel(ctx)
		b := s.Next(sessiontest.Acquire(1, 5))
		var wg sync.WaitGroup
		wg.Go(func() { store.Apply(cancelled, "a", b) })
		synctest.Wait()
		cancel()
		wg.Wait()
		b.Ops[0].Weight = 1
		close(begun)
		synctest.Wait()
		if snapshot, err := store.Inspect(ctx, "a"); err != nil || snapshot.InUse != 5 {
			t.Errorf("%d in use, %v, want the 5 requested", snapshot.InUse, err)
		}
	})
}
