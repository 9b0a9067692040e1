package remotestore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/storetest"
)

func notFound(http.Handler) http.Handler { return http.NotFoundHandler() }

// A notifyingStore notifies its listeners of the names that a test sends.
type notifyingStore struct {
	fleet.Store
	listeners atomic.Int64
	names     chan string
}

func newNotifyingStore() *notifyingStore {
	return &notifyingStore{Store: memstore.New(), names: make(chan string)}
}

func (h *notifyingStore) Listen(ctx context.Context, _ string, notify func(string)) error {
	h.listeners.Add(1)
	defer h.listeners.Add(-1)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case name := <-h.names:
			notify(name)
		}
	}
}

// wantNotified fails unless a notification about name arrives within a minute.
func wantNotified(t *testing.T, notified <-chan string, name string) {
	t.Helper()
	for timeout := time.After(time.Minute); ; {
		select {
		case got := <-notified:
			if got == name {
				return
			}
		case <-timeout:
			t.Fatalf("no notification about %s within a minute", name)
		}
	}
}

// TestListen_ContinuesAfterACut checks that notifications arrive after the connection was
// cut, and that Listen notifies about all semaphores in use, since it may have missed
// changes.
func TestListen_ContinuesAfterACut(t *testing.T) {
	t.Parallel()
	backend := newNotifyingStore()
	store, proxies := openBehindProxies(t, backend, 2, serving{})
	for i := range 3 {
		open(t, store, fmt.Sprint("used-", i), protocol.Config{Capacity: 1})
	}
	notified := make(chan string, 1000)
	l := goListen(t, store, "me", func(name string) { notified <- name })
	for range 5 {
		backend.names <- "fresh"
		wantNotified(t, notified, "fresh")
		for len(notified) > 0 {
			<-notified
		}
		for _, p := range proxies {
			p.Cut()
		}
		missed := map[string]bool{}
		for len(missed) < 3 {
			select {
			case name := <-notified:
				missed[name] = true
			case <-time.After(time.Minute):
				t.Fatalf("notified only about %v, want all three that were missed", missed)
			}
		}
	}
	if err := l.stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	await(t, "the servers have no listeners", func() bool { return backend.listeners.Load() == 0 })
}

// TestListen_LeavesAStreamWithoutHeartbeats loses the heartbeats of the server, while the
// connection stays open.
func TestListen_LeavesAStreamWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	backend := newNotifyingStore()
	store, proxies := openBehindProxies(t, backend, 2, serving{heartbeat: 50 * time.Millisecond})
	open(t, store, "used", protocol.Config{Capacity: 1})
	notified := make(chan string, 1000)
	goListen(t, store, "me", func(name string) { notified <- name })
	backend.names <- "first"
	wantNotified(t, notified, "first")
	began := time.Now()
	proxies[0].SetFault(storetest.Fault{LoseReplies: true})
	wantNotified(t, notified, "used")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the missing heartbeats were detected after %v", took)
	}
	if store.currentAddress() != proxies[1].Address {
		t.Error("the store still uses the server without heartbeats")
	}
}

// TestListen_BeginsTheNextStreamAtOnce checks that the next stream begins without a pause
// when the lifetime of a stream ends. A pause would last for an hour.
func TestListen_BeginsTheNextStreamAtOnce(t *testing.T) {
	t.Parallel()
	server := serve(t, newNotifyingStore(), serving{heartbeat: 10 * time.Second, lifetime: 20 * time.Millisecond})
	store := openAt(t, server.address)
	store.pause = time.Hour
	open(t, store, "used", protocol.Config{Capacity: 1})
	var again atomic.Int64
	goListen(t, store, "me", func(string) { again.Add(1) })
	await(t, "it has begun fifty streams", func() bool { return again.Load() >= 50 })
}

// A noListenStore does not support notifications.
type noListenStore struct{ fleet.Store }

func (noListenStore) Listen(context.Context, string, func(string)) error {
	return fmt.Errorf("listen: %w", errors.ErrUnsupported)
}

func TestListen_ReportsUnsupported(t *testing.T) {
	t.Parallel()
	store := openAt(t, serve(t, noListenStore{memstore.New()}, serving{}).address)
	if err := store.Listen(limited(t, 20*time.Second), "me", func(string) {}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// TestNames_UnusedAreRemoved checks that names that are no longer used are removed.
func TestNames_UnusedAreRemoved(t *testing.T) {
	t.Parallel()
	store := openAt(t, "nowhere")
	for i := range 3 * minPruned {
		store.noteName(fmt.Sprint(i))
		store.names.used[fmt.Sprint(i)] = time.Now().Add(-2 * unusedAfter)
	}
	store.noteName("used")
	if n := len(store.names.used); n > minPruned+1 {
		t.Errorf("%d names are kept, want at most %d", n, minPruned+1)
	}
	notified := false
	store.notifyAll(func(name string) { notified = notified || name == "used" })
	if !notified {
		t.Error("a name in use was removed")
	}
}
