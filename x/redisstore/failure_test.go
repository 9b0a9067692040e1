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
	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/redistest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// work has goroutines acquire and release while trouble is made, and fails unless
// never more than the capacity held, all were served and nothing is left.
func work(t *testing.T, store *Store, trouble func(round int)) {
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
				t.Errorf("round %d: nothing goes on", round)
				stop()
				return
			}
		}
		trouble(round)
	}
	stop()
	wg.Wait()
	if most.Load() > capacity {
		t.Errorf("%d held %d permits at a time", most.Load(), capacity)
	}
	if err := client.Close(ctx); err != nil {
		t.Error(err)
	}
}

func wantEmpty(t *testing.T, server *redistest.Server) {
	t.Helper()
	sessiontest.WantHeld(t, openServer(t, server), "db")
}

func TestItGoesOnWhenTheServerIsStartedAgain(t *testing.T) {
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

func TestItGoesOnWhenConnectionsAreCut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := enginetest.NewProxy(t, server.Address)
	work(t, openAt(t, Options{Addresses: []string{proxy.Address}}), func(int) { proxy.Cut() })
	wantEmpty(t, server)
}

func TestItGoesOnWhenAnswersAreLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := enginetest.NewProxy(t, server.Address)
	work(t, openAt(t, Options{Addresses: []string{proxy.Address}}), func(int) {
		proxy.SetFault(enginetest.Fault{CutReplies: true})
		time.Sleep(50 * time.Millisecond)
		proxy.Heal()
	})
	wantEmpty(t, server)
}

func TestItGoesOnWhenScriptsAreFlushed(t *testing.T) {
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

func TestALostAnswerIsToldAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := enginetest.NewProxy(t, server.Address)
	s := sessiontest.Begin(t, openAt(t, Options{Addresses: []string{proxy.Address}}), "db", protocol.Config{Capacity: 3})
	proxy.SetFault(enginetest.Fault{CutReplies: true})
	b := s.Next(sessiontest.Acquire(1, 1))
	if _, err := s.Store.Apply(ctx, "db", b); err == nil {
		t.Fatal("there was an answer")
	}
	proxy.Heal()
	r, err := s.Store.Apply(ctx, "db", b)
	if err != nil || r.Status != protocol.Repeated || len(r.Results) != 1 {
		t.Fatal(r, err)
	}
	sessiontest.WantHeld(t, s.Store, "db", r.Results[0].Lease)
}

// What the server refuses it has not done, and does when it can.
func TestWhatIsRefusedIsNotDone(t *testing.T) {
	t.Parallel()
	for _, refusal := range []struct {
		name, setting, on, off, says string
		fault                        fleet.Fault
	}{
		{"memory", "maxmemory", "1", "0", "OOM", fleet.FaultFull},
		{"replicas", "min-replicas-to-write", "1", "0", "NOREPLICAS", ""},
	} {
		t.Run(refusal.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := sessiontest.Begin(t, openServer(t, server), "db", protocol.Config{Capacity: 3})
			server.Must("CONFIG", "SET", refusal.setting, refusal.on)
			b := s.Next(sessiontest.Acquire(1, 1))
			_, err := s.Store.Apply(ctx, "db", b)
			if err == nil || !strings.Contains(err.Error(), refusal.says) || !strings.Contains(err.Error(), server.Address) {
				t.Errorf("error %v, want one about %s", err, refusal.says)
			}
			if !errors.Is(err, sema.ErrUnavailable) || fleet.FaultOf(err) != refusal.fault {
				t.Errorf("%v is not ErrUnavailable and %q", err, refusal.fault)
			}
			server.Must("CONFIG", "SET", refusal.setting, refusal.off)
			r, err := s.Store.Apply(ctx, "db", b)
			if err != nil || r.Status != protocol.Applied || len(r.Results) != 1 {
				t.Fatal(r, err)
			}
			sessiontest.WantHeld(t, s.Store, "db", r.Results[0].Lease)
		})
	}
}

// A refusal that passes is waited for.
func TestARefusalThatPassesIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := sessiontest.Begin(t, openServer(t, server), "db", protocol.Config{Capacity: 3})
	server.Must("CONFIG", "SET", "min-replicas-to-write", "1")
	time.AfterFunc(100*time.Millisecond, func() { server.Do("CONFIG", "SET", "min-replicas-to-write", "0") })
	s.Granted(1, sessiontest.Acquire(1, 1))
}

func TestAServerThatIsLoadingIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--save", "3600 1", "--key-load-delay", "1500", "--loading-process-events-interval-bytes", "1024")
	store := openServer(t, server)
	for i := range 400 {
		sessiontest.Begin(t, store, fmt.Sprint("other", i), protocol.Config{Capacity: 1})
	}
	server.Await("rdb_bgsave_in_progress:0", "INFO", "persistence") // which the clock has set off
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

// Connections that lead to a replica are made anew: who it follows may be found
// at the same address by now.
func TestAReplicaIsLeft(t *testing.T) {
	t.Parallel()
	t.Run("with the library", func(t *testing.T) { t.Parallel(); leaveReplica(t, func(*redistest.Server) {}) })
	t.Run("without it", func(t *testing.T) {
		t.Parallel()
		leaveReplica(t, func(s *redistest.Server) { s.Must("FUNCTION", "FLUSH") })
	})
}

// leaveReplica has a client's server become a replica, after something was done
// there.
func leaveReplica(t *testing.T, do func(primary *redistest.Server)) {
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
	p.proxy.Retarget(p.replica.Address) // and no connection is cut
	time.Sleep(time.Second)
	if r, err := s.Store.Apply(ctx, "db", b); err != nil || r.Status != protocol.Applied {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestHintsComeAgainAfterACut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := enginetest.NewProxy(t, server.Address)
	store := openAt(t, Options{Addresses: []string{proxy.Address}})
	told := make(chan string, 100)
	listening, stop := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- store.Listen(listening, sessiontest.Instance(t), func(name string) { told <- name }) }()
	holder, waiter := sessiontest.Begin(t, openServer(t, server), "db", protocol.Config{Capacity: 1}), sessiontest.Begin(t, openServer(t, server), "db", protocol.Config{Capacity: 1})
	for ticket := protocol.Ticket(1); ticket < 3; ticket++ {
		for began := time.Now(); ; {
			holder.Say(sessiontest.Release(holder.LastLease()), sessiontest.Acquire(ticket*1000, 1))
			waiter.Say(sessiontest.Acquire(ticket, 1))
			holder.Say(sessiontest.Release(holder.LastLease()))
			select {
			case name := <-told:
				if name != "db" {
					t.Errorf("told of %q", name)
				}
			case <-time.After(50 * time.Millisecond):
				waiter.Say(sessiontest.Release(waiter.LastLease()))
				if time.Since(began) > time.Minute {
					t.Fatal("not told")
				}
				continue
			}
			waiter.Say(sessiontest.Release(waiter.LastLease()))
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

// A thousand waiters cost one message a grant.
func TestOneMessageForEachGrant(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	const waiters = 50
	holder := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 1})
	lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
	line := make([]*sessiontest.Session, waiters)
	for i := range line {
		line[i] = sessiontest.Begin(t, store, "db", protocol.Config{})
		line[i].Say(sessiontest.Acquire(1, 1))
	}
	server.Must("CONFIG", "RESETSTAT")
	for _, next := range line {
		holder.Say(sessiontest.Release(lease))
		holder, lease = next, next.Granted(1)[0]
	}
	if stats := server.Must("INFO", "commandstats"); !strings.Contains(stats, fmt.Sprintf("cmdstat_publish:calls=%d,", waiters)) {
		t.Errorf("want %d messages: %s", waiters, stats)
	}
}

func TestCloseEndsEverything(t *testing.T) {
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
		t.Error("a store that is closed answers")
	}
}
