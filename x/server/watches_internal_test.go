package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

// A countingStore counts snapshots, and can be unavailable.
type countingStore struct {
	*memstore.Store
	inspects, lists atomic.Int64
	away            atomic.Bool
	racing          atomic.Bool // see Administer
}

func (c *countingStore) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	c.lists.Add(1)
	return c.Store.List(ctx, q)
}

func (c *countingStore) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	c.inspects.Add(1)
	if c.away.Load() {
		return protocol.Snapshot{}, errors.New("connection refused")
	}
	return c.Store.Inspect(ctx, name)
}

// serviceOver runs a test with a service over a store, in a synctest bubble.
func serviceOver(t *testing.T, test func(t *testing.T, s *service, store *countingStore)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: memstore.New()}
		s, err := newService(store, Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		if _, _, err := s.configure(t.Context(), "db", conditions{}, settings{Capacity: new(int64(4)), TTL: new(duration(time.Hour))}); err != nil {
			t.Fatal(err)
		}
		test(t, s, store)
	})
}

// watching records what a watcher is sent, until the test ends.
type watching struct {
	mu   sync.Mutex
	sent []*observation
}

func (w *watching) watch(ctx context.Context, s *service) error {
	return s.watch(ctx, "db", func(now *observation) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if now != nil {
			w.sent = append(w.sent, now)
		}
		return true
	})
}

func (w *watching) last() (n int, last *observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sent) == 0 {
		return 0, nil
	}
	return len(w.sent), w.sent[len(w.sent)-1]
}

// TestWatches_ShareOnePoll checks that any number of watchers of a semaphore, and the dashboard,
// cost the store as many snapshots as one, and that all of them see every change.
func TestWatches_ShareOnePoll(t *testing.T) {
	serviceOver(t, func(t *testing.T, s *service, store *countingStore) {
		cost := func(watchers, pages int) int64 {
			ctx, end := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer end()
			all := make([]watching, watchers)
			before := store.inspects.Load()
			for i := range all {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond) // they join at different times
					if err := all[i].watch(ctx, s); err != nil {
						t.Error(err)
					}
				})
			}
			for range pages {
				wg.Go(func() {
					for time.Sleep(pollEvery / 2); ctx.Err() == nil; time.Sleep(time.Second) {
						if _, err := (dashboardAPI{s}).Recent(ctx, "db"); err != nil {
							t.Error(err)
						}
					}
				})
			}
			time.Sleep(10 * time.Second)
			lease, err := s.acquire(ctx, acquireRequest{semaphore: "db", weight: 1})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			if err := s.release(ctx, "db", lease.ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			for i := range all {
				n, last := all[i].last()
				if n < 3 || n > 5 || last.snapshot.InUse != 0 {
					t.Fatalf("watcher %d was sent %d snapshots, the last with %d in use", i, n, last.snapshot.InUse)
				}
				if _, first := all[0].last(); last != first {
					t.Fatal("watchers do not share observations")
				}
			}
			return store.inspects.Load() - before
		}
		one, many := cost(1, 0), cost(200, 50)
		// The polls of 30 s are jittered by a tenth.
		if one < 50 || one > 70 || many < 50 || many > 70 {
			t.Errorf("one watcher costs %d snapshots, 200 and 50 pages %d", one, many)
		}
		time.Sleep(time.Second)
		before := store.inspects.Load()
		time.Sleep(time.Minute)
		if n := store.inspects.Load() - before; n != 0 {
			t.Errorf("%d snapshots without a watcher", n)
		}
	})
}

// TestWatches_SeeChangesAtOnce checks that watchers and the dashboard see this server's changes at
// once.
func TestWatches_SeeChangesAtOnce(t *testing.T) {
	serviceOver(t, func(t *testing.T, s *service, store *countingStore) {
		var w watching
		ctx, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer end()
		wg.Go(func() { _ = w.watch(ctx, s) })
		synctest.Wait()
		for i := range int64(5) {
			time.Sleep(pollEvery / 3)
			if _, _, err := s.configure(t.Context(), "db", conditions{}, settings{Capacity: new(i + 10)}); err != nil {
				t.Fatal(err)
			}
			if now, err := (dashboardAPI{s}).Recent(t.Context(), "db"); err != nil || now.Config.Capacity != i+10 {
				t.Errorf("the dashboard sees %v, %v", now.Config, err)
			}
			time.Sleep(pollGap)
			synctest.Wait()
			if _, last := w.last(); last.snapshot.Config.Capacity != i+10 {
				t.Errorf("after change %d the watcher sees %v", i, last.snapshot.Config)
			}
		}
	})
}

// TestWatches_BeginWithTheState checks that a new watcher sees what this server has granted before,
// also while others watch.
func TestWatches_BeginWithTheState(t *testing.T) {
	serviceOver(t, func(t *testing.T, s *service, store *countingStore) {
		ctx, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer end()
		wg.Go(func() { _ = new(watching).watch(ctx, s) })
		for i := range int64(3) {
			time.Sleep(pollEvery / 3)
			if _, err := s.acquire(t.Context(), acquireRequest{semaphore: "db", weight: 1}); err != nil {
				t.Fatal(err)
			}
			err := s.watch(t.Context(), "db", func(now *observation) bool {
				if now.snapshot.InUse != i+1 {
					t.Errorf("%d in use, want %d", now.snapshot.InUse, i+1)
				}
				return false
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// TestWatches_FailAndEnd checks that a watcher is sent one error while the store is unavailable, and
// the state afterwards. After the semaphore was deleted, the watcher is sent that error, and the stream ends.
func TestWatches_FailAndEnd(t *testing.T) {
	serviceOver(t, func(t *testing.T, s *service, store *countingStore) {
		var w watching
		ended := make(chan error, 1)
		go func() { ended <- w.watch(t.Context(), s) }()
		time.Sleep(2 * time.Second)
		store.away.Store(true)
		time.Sleep(time.Minute)
		if n, last := w.last(); n != 2 || last.err == nil {
			t.Errorf("%d were sent, the last with %v", n, last.err)
		}
		late := make(chan error, 1)
		go func() { late <- new(watching).watch(t.Context(), s) }()
		if err := <-late; err == nil {
			t.Error("a stream started while the store is unavailable")
		}
		store.away.Store(false)
		time.Sleep(time.Second)
		if n, last := w.last(); n != 3 || last.err != nil {
			t.Errorf("%d were sent, the last with %v", n, last.err)
		}
		if err := s.administer(t.Context(), "db", fleet.Command{Delete: true}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, last := w.last(); !errors.Is(last.err, fs.ErrNotExist) {
			t.Errorf("the last is %v", last.err)
		}
		if err := new(watching).watch(t.Context(), s); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
	})
}

// TestList_OneQueryForAPage checks that a page of a list is one query of the store, without
// snapshots.
func TestList_OneQueryForAPage(t *testing.T) {
	serviceOver(t, func(t *testing.T, s *service, store *countingStore) {
		for i := range 250 {
			if _, _, err := s.configure(t.Context(), fmt.Sprintf("n-%03d", i), conditions{}, settings{Capacity: new(int64(i))}); err != nil {
				t.Fatal(err)
			}
		}
		lists, inspects := store.lists.Load(), store.inspects.Load()
		var all []summary
		pages := int64(0)
		for next := ""; ; pages++ {
			found, after, err := s.list(t.Context(), "n-", page{limit: 100, after: next})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, found...)
			if next = after; next == "" {
				break
			}
		}
		if len(all) != 250 || all[249].Capacity != 249 || store.lists.Load()-lists != pages+1 || pages != 2 || store.inspects.Load() != inspects {
			t.Errorf("%d semaphores on %d pages cost %d lists and %d snapshots", len(all), pages+1, store.lists.Load()-lists, store.inspects.Load()-inspects)
		}
	})
}
