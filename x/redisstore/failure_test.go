package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// work acquires and releases in several goroutines and calls disrupt between rounds. It
// fails if more than the capacity is ever held, if an acquire fails, or if a round makes
// no progress.
func work(t *testing.T, store *Store, disrupt func(round int)) {
	t.Helper()
	const capacity = 4
	client := fleet.New(store)
	semaphore, err := client.Semaphore("db", capacity, fleet.TTL(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var holding, most, pairs atomic.Int64
	working, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for working.Err() == nil {
				p, err := semaphore.Acquire(ctx, 1)
				if err != nil {
					t.Error(err)
					return
				}
				n := holding.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Millisecond)
				holding.Add(-1)
				p.Release()
				pairs.Add(1)
			}
		})
	}
	for round := range 5 {
		before := pairs.Load()
		for began := time.Now(); pairs.Load() < before+20; time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Errorf("round %d: no progress within a minute", round)
				stop()
				return
			}
		}
		disrupt(round)
	}
	stop()
	wg.Wait()
	if most.Load() > capacity {
		t.Errorf("up to %d holders, want at most %d", most.Load(), capacity)
	}
	if err := client.Close(ctx); err != nil {
		t.Error(err)
	}
}

func wantEmpty(t *testing.T, server *redistest.Server) {
	t.Helper()
	sessiontest.WantHeld(t, openServer(t, server), "db")
}

func TestStore_WorksAfterServerRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	work(t, openServer(t, server), func(round int) {
		if round > 1 {
			return
		}
		server.Restart()
	})
	wantEmpty(t, server)
}

func TestStore_WorksAfterConnectionsAreCut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := storetest.NewProxy(t, server.Address)
	work(t, openAt(t, Options{Addresses: []string{proxy.Address}}), func(int) { proxy.Cut() })
	wantEmpty(t, server)
}

func TestStore_WorksAfterRepliesAreLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := storetest.NewProxy(t, server.Address)
	work(t, openAt(t, Options{Addresses: []string{proxy.Address}}), func(int) {
		proxy.SetFault(storetest.Fault{CutReplies: true})
		time.Sleep(50 * time.Millisecond)
		proxy.Heal()
	})
	wantEmpty(t, server)
}

func TestStore_WorksAfterScriptsAreFlushed(t *testing.T) {
	t.Parallel()
	for _, settings := range [][]string{nil, {"--rename-command", "FUNCTION", ""}} {
		server := redistest.Start(t, settings...)
		store := openServer(t, server)
		work(t, store, func(int) {
			server.Must("SCRIPT", "FLUSH")
			if settings == nil {
				server.Must("FUNCTION", "FLUSH")
			}
		})
		wantEmpty(t, server)
	}
}

func TestApply_RepeatsALostReply(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := storetest.NewProxy(t, server.Address)
	s := sessiontest.Begin(t, openAt(t, Options{Addresses: []string{proxy.Address}}), "db", protocol.Config{Capacity: 3})
	proxy.SetFault(storetest.Fault{CutReplies: true})
	b := s.Next(sessiontest.Acquire(1, 1))
	if _, err := s.Store.Apply(ctx, "db", b); err == nil {
		t.Fatal("a reply was received")
	}
	proxy.Heal()
	r, err := s.Store.Apply(ctx, "db", b)
	if err != nil || r.Status != protocol.Repeated || len(r.Results) != 1 {
		t.Fatal(r, err)
	}
	sessiontest.WantHeld(t, s.Store, "db", r.Results[0].Lease)
}

// TestApply_DoesNotApplyARejectedBatch checks that the server applies no part of a batch
// that it rejects, and applies the batch when it is sent again.
func TestApply_DoesNotApplyARejectedBatch(t *testing.T) {
	t.Parallel()
	for _, rejection := range []struct {
		name, setting, on, off, text string
		fault                        fleet.Fault
	}{
		{"memory", "maxmemory", "1", "0", "OOM", fleet.FaultFull},
		{"replicas", "min-replicas-to-write", "1", "0", "NOREPLICAS", ""},
	} {
		t.Run(rejection.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := sessiontest.Begin(t, openServer(t, server), "db", protocol.Config{Capacity: 3})
			server.Must("CONFIG", "SET", rejection.setting, rejection.on)
			b := s.Next(sessiontest.Acquire(1, 1))
			_, err := s.Store.Apply(ctx, "db", b)
			if err == nil || !strings.Contains(err.Error(), rejection.text) || !strings.Contains(err.Error(), server.Address) {
				t.Errorf("error %v, want one about %s", err, rejection.text)
			}
			if !errors.Is(err, sema.ErrUnavailable) || fleet.FaultOf(err) != rejection.fault {
				t.Errorf("%v is not ErrUnavailable and %q", err, rejection.fault)
			}
			server.Must("CONFIG", "SET", rejection.setting, rejection.off)
			r, err := s.Store.Apply(ctx, "db", b)
			if err != nil || r.Status != protocol.Applied || len(r.Results) != 1 {
				t.Fatal(r, err)
			}
			sessiontest.WantHeld(t, s.Store, "db", r.Results[0].Lease)
		})
	}
}

// TestApply_RetriesTemporaryRejections checks that Apply retries while the server rejects
// requests temporarily.
func TestApply_RetriesTemporaryRejections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := sessiontest.Begin(t, openServer(t, server), "db", protocol.Config{Capacity: 3})
	server.Must("CONFIG", "SET", "min-replicas-to-write", "1")
	time.AfterFunc(100*time.Millisecond, func() { server.Do("CONFIG", "SET", "min-replicas-to-write", "0") })
	s.Granted(1, sessiontest.Acquire(1, 1))
}

func TestStore_WaitsForALoadingServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--save", "3600 1", "--key-load-delay", "1500", "--loading-process-events-interval-bytes", "1024")
	store := openServer(t, server)
	for i := range 400 {
		sessiontest.Begin(t, store, fmt.Sprint("other", i), protocol.Config{Capacity: 1})
	}
	server.Await("rdb_bgsave_in_progress:0", "INFO", "persistence") // a snapshot that the save interval has started
	server.Must("SAVE")
	server.Restart()
	loading := 0
	for began := time.Now(); ; {
		_, _, err := store.Open(ctx, "db", protocol.Config{Capacity: 1, TTL: sessiontest.TTL, Protocol: protocol.Version}, sessiontest.Opener("test"))
		if err == nil {
			break
		}
		if strings.Contains(err.Error(), "LOADING") {
			loading++
		}
		if time.Since(began) > time.Minute {
			t.Fatal(err)
		}
	}
	if loading > 10 {
		t.Errorf("failed %d times while the server was loading", loading)
	}
}

// TestStore_ReconnectsFromAReplica checks that a store whose server has become a replica
// connects again, since the primary may now be at the same address.
func TestStore_ReconnectsFromAReplica(t *testing.T) {
	t.Parallel()
	t.Run("with the library", func(t *testing.T) { t.Parallel(); testBecomesReplica(t, func(*redistest.Server) {}) })
	t.Run("without the library", func(t *testing.T) {
		t.Parallel()
		testBecomesReplica(t, func(s *redistest.Server) { s.Must("FUNCTION", "FLUSH") })
	})
}

// testBecomesReplica turns the server of a store into a replica, after it has called do
// with the server.
func testBecomesReplica(t *testing.T, do func(primary *redistest.Server)) {
	p := newPair(t)
	s := sessiontest.Begin(t, p.open(t), "db", protocol.Config{Capacity: 3})
	p.catchUp()
	p.replica.Promote()
	do(p.primary)
	p.primary.Must("REPLICAOF", "127.0.0.1", fmt.Sprint(p.replica.Port))
	b := s.Next()
	if _, err := s.Store.Apply(ctx, "db", b); err == nil || !strings.Contains(err.Error(), "it is a replica") {
		t.Errorf("error %v", err)
	}
	p.proxy.Retarget(p.replica.Address) // without cutting connections
	time.Sleep(time.Second)
	if r, err := s.Store.Apply(ctx, "db", b); err != nil || r.Status != protocol.Applied {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestListen_NotifiesAgainAfterACut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := storetest.NewProxy(t, server.Address)
	store := openAt(t, Options{Addresses: []string{proxy.Address}})
	notified := make(chan string, 100)
	listening, stop := context.WithCancel(ctx)
	done := make(chan error)
	go func() {
		done <- store.Listen(listening, sessiontest.Instance(t), func(name string) { notified <- name })
	}()
	holder, waiter := sessiontest.Begin(t, openServer(t, server), "db", protocol.Config{Capacity: 1}), sessiontest.Begin(t, openServer(t, server), "db", protocol.Config{Capacity: 1})
	for ticket := protocol.Ticket(1); ticket < 3; ticket++ {
		for began := time.Now(); ; {
			holder.Send(sessiontest.Release(holder.LastLease()), sessiontest.Acquire(ticket*1000, 1))
			waiter.Send(sessiontest.Acquire(ticket, 1))
			holder.Send(sessiontest.Release(holder.LastLease()))
			select {
			case name := <-notified:
				if name != "db" {
					t.Errorf("notified about %q, want db", name)
				}
			case <-time.After(50 * time.Millisecond):
				waiter.Send(sessiontest.Release(waiter.LastLease()))
				if time.Since(began) > time.Minute {
					t.Fatal("not notified within a minute")
				}
				continue
			}
			waiter.Send(sessiontest.Release(waiter.LastLease()))
			break
		}
		proxy.Cut()
	}
	stop()
	select {
	case err := <-done:
		if err != context.Canceled {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("still listening")
	}
}

// TestApply_PublishesOneMessagePerGrant checks that a grant costs one message, however
// many sessions wait.
func TestApply_PublishesOneMessagePerGrant(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	const waiters = 50
	holder := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 1})
	lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
	queue := make([]*sessiontest.Session, waiters)
	for i := range queue {
		queue[i] = sessiontest.Begin(t, store, "db", protocol.Config{})
		queue[i].Send(sessiontest.Acquire(1, 1))
	}
	server.Must("CONFIG", "RESETSTAT")
	for _, next := range queue {
		holder.Send(sessiontest.Release(lease))
		holder, lease = next, next.Granted(1)[0]
	}
	if stats := server.Must("INFO", "commandstats"); !strings.Contains(stats, fmt.Sprintf("cmdstat_publish:calls=%d,", waiters)) {
		t.Errorf("want %d messages: %s", waiters, stats)
	}
}

func TestClose_EndsListenAndApply(t *testing.T) {
	t.Parallel()
	store := openServer(t, redistest.Start(t))
	done := make(chan error)
	go func() { done <- store.Listen(ctx, "me", func(string) {}) }()
	time.Sleep(50 * time.Millisecond)
	store.Close()
	select {
	case err := <-done:
		if err != errClosed {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("still listening")
	}
	if _, err := store.Apply(ctx, "db", protocol.Batch{}); err == nil {
		t.Error("Apply of a closed store succeeds")
	}
}
