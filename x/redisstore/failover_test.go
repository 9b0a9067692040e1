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

// A pair is a primary and a replica, and a proxy through which clients reach the current
// primary.
type pair struct {
	primary, replica *redistest.Server
	proxy            *storetest.Proxy
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{primary: redistest.Start(t)}
	p.replica = redistest.Replica(t, p.primary)
	p.proxy = storetest.NewProxy(t, p.primary.Address)
	return p
}

func (p *pair) open(t *testing.T) *Store {
	t.Helper()
	return openAt(t, Options{Addresses: []string{p.proxy.Address}, Promotion: shortPromotion})
}

// catchUp waits until the replica has all writes of the primary.
func (p *pair) catchUp() { p.replica.CatchUp(p.primary) }

// lag disconnects the replica from the primary.
func (p *pair) lag() { p.replica.Must("REPLICAOF", "127.0.0.1", "1") }

// failOver kills the primary and promotes the replica.
func (p *pair) failOver() {
	p.primary.Kill()
	p.replica.Promote()
	p.proxy.Retarget(p.replica.Address)
	p.proxy.Cut()
}

const (
	shortTTL       = protocol.Micros(1200 * time.Millisecond / time.Microsecond)
	shortPromotion = 300 * time.Millisecond
	leaseValidity  = 800 * time.Millisecond // how long a holder relies on a lease: two thirds of the TTL
	// quarantine is how long a promoted server grants nothing.
	quarantine = time.Duration(shortTTL)*time.Microsecond + shortPromotion
)

// openAgain opens a session as soon as the store has reconnected.
func openAgain(t *testing.T, s *Store, name string, c protocol.Config) *sessiontest.Session {
	t.Helper()
	c.Protocol = protocol.Version
	for range 100 {
		if id, _, err := s.Open(ctx, name, c, sessiontest.Opener("again")); err == nil {
			return sessiontest.Opened(t, s, name, id)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the new primary cannot be reached")
	return nil
}

// TestFailover_GrantsNothingWhileALostLeaseMayBeHeld promotes a replica that lacks an
// acknowledged lease. The new primary grants nothing while the holder may rely on that
// lease.
func TestFailover_GrantsNothingWhileALostLeaseMayBeHeld(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	store, config := p.open(t), protocol.Config{Capacity: 2, TTL: shortTTL}
	kept, lost := sessiontest.Begin(t, store, "db", config), sessiontest.Begin(t, store, "db", config)
	old := kept.Granted(1, sessiontest.Acquire(1, 1))[0]
	kept.Send()
	p.catchUp()
	p.lag()
	sent := time.Now()
	gone := lost.Granted(1, sessiontest.Acquire(1, 1))[0]
	p.failOver()

	// Another process, which has not used the old primary.
	met := time.Now()
	waiter := openAgain(t, p.open(t), "db", config)
	if r := waiter.Send(sessiontest.Acquire(1, 1)); len(r.Results) > 0 {
		t.Fatalf("granted at once: %+v", r.Results)
	}
	kept.Send() // it has lost nothing
	lost.WantUnknown()
	for {
		kept.Send()
		r := waiter.Send()
		if len(r.Results) == 0 {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if passed := time.Since(sent); passed < leaseValidity+shortPromotion {
			t.Errorf("granted %v after the lease that was lost", passed)
		}
		if passed := time.Since(met); passed < quarantine {
			t.Errorf("granted %v after the promotion, want %v: the old primary may still reply to other clients", passed, quarantine)
		}
		fence := r.Results[0].Fence
		if fence.Seq <= gone || fence.Floor != old {
			t.Errorf("%+v after leases %d and %d", fence, old, gone)
		}
		var guard fleet.Guard
		if guard.Admit(fence) != nil || guard.Admit(protocol.Fence{Seq: gone, Floor: old, Exact: true}) == nil {
			t.Error("the guard admits the lease that was lost")
		}
		break
	}
	sessiontest.WantHeld(t, store, "db", old, waiter.LastLease())
}

// TestFailover_RejectsSessionsWithLostState promotes a replica that knows the sessions,
// but lacks some of their batches or results. Such sessions may hold leases that the new
// primary does not know.
func TestFailover_RejectsSessionsWithLostState(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	store, config := p.open(t), protocol.Config{Capacity: 5, TTL: shortTTL}
	sentBatch, gotReply, repeated := sessiontest.Begin(t, store, "db", config), sessiontest.Begin(t, store, "db", config), sessiontest.Begin(t, store, "db", config)
	holder := sessiontest.Begin(t, store, "db", config)
	lease := holder.Granted(1, sessiontest.Acquire(1, 5))[0]
	sentBatch.Send()
	for _, s := range []*sessiontest.Session{gotReply, repeated} {
		s.Send(sessiontest.Acquire(1, 1))
	}
	p.catchUp()
	p.lag()
	sentBatch.Send(sessiontest.Acquire(1, 1))
	holder.Send(sessiontest.Release(lease))
	// The session receives its grant in the reply to a repeated batch, since the first
	// reply was sent before the grant.
	r, err := store.Apply(ctx, "db", protocol.Batch{Owner: sessiontest.Owner, Session: gotReply.ID, Seq: gotReply.Seq})
	if err != nil || r.Status != protocol.Repeated || len(gotReply.Receive(r).Results) != 1 {
		t.Fatal(r, err)
	}
	p.failOver()
	openAgain(t, store, "db", config)
	sentBatch.WantUnknown()
	holder.WantUnknown()
	gotReply.WantUnknown()
	r, err = store.Apply(ctx, "db", protocol.Batch{Owner: sessiontest.Owner, Session: repeated.ID, Seq: repeated.Seq})
	if err != nil || r.Status != protocol.Repeated {
		t.Errorf("repeated batch: status %d, %v, want Repeated", r.Status, err)
	}
	repeated.Send()
}

// TestFailover_LostSemaphoreIsNotTreatedAsNew promotes a replica that does not know a
// semaphore, which may be in use.
func TestFailover_LostSemaphoreIsNotTreatedAsNew(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	store, config := p.open(t), protocol.Config{Capacity: 1, TTL: shortTTL}
	sessiontest.Begin(t, store, "other", config)
	p.catchUp()
	p.lag()
	sent := time.Now()
	lost := sessiontest.Begin(t, store, "db", config).Granted(1, sessiontest.Acquire(1, 1))[0]
	p.failOver()
	fresh := openAgain(t, p.open(t), "db", config)
	fresh.Send(sessiontest.Acquire(1, 1))
	result := fresh.AwaitGrant(10 * time.Second)
	if passed := time.Since(sent); passed < leaseValidity+shortPromotion {
		t.Errorf("granted %v after the lease that was lost", passed)
	}
	if result.Lease <= lost {
		t.Errorf("lease %d after %d", result.Lease, lost)
	}
	time.Sleep(time.Duration(shortTTL)*time.Microsecond + shortPromotion)
	later := openAgain(t, store, "later", config)
	later.Granted(1, sessiontest.Acquire(1, 1)) // at once: no holder relies on a lost lease any more
}

// TestRestart_KnownClientRevealsDataLoss restarts a server without data. The server
// detects the loss by the epoch of a client that used it before.
func TestRestart_KnownClientRevealsDataLoss(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store, config := openServer(t, server), protocol.Config{Capacity: 1, TTL: shortTTL}
	sent := time.Now()
	holder := sessiontest.Begin(t, store, "db", config)
	holder.Granted(1, sessiontest.Acquire(1, 1))
	server.Restart()
	fresh := openAgain(t, store, "db", config)
	holder.WantUnknown()
	fresh.Send(sessiontest.Acquire(1, 1))
	fresh.AwaitGrant(10 * time.Second)
	if passed := time.Since(sent); passed < leaseValidity {
		t.Errorf("granted %v after the lease that was lost", passed)
	}
}

// TestRestart_EmptyServerGrantsNothingForATTL checks that a server that restarts without
// data grants nothing for a TTL, even if all clients are new.
func TestRestart_EmptyServerGrantsNothingForATTL(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := protocol.Config{Capacity: 1, TTL: shortTTL}
	sent := time.Now()
	sessiontest.Begin(t, openServer(t, server), "db", config).Granted(1, sessiontest.Acquire(1, 1))
	server.Restart()
	newcomer := openServer(t, server)
	fresh := sessiontest.Begin(t, newcomer, "db", config)
	fresh.Send(sessiontest.Acquire(1, 1))
	fresh.AwaitGrant(10 * time.Second)
	if passed := time.Since(sent); passed < leaseValidity {
		t.Errorf("granted %v after the lease that was lost", passed)
	}
	// By then the server has been up for a TTL.
	sessiontest.Begin(t, newcomer, "other", config).Granted(1, sessiontest.Acquire(1, 1))
}

// TestFlush_GrantsNothingForOneTTL checks that after FLUSHALL a server grants nothing for
// a TTL, even to new clients. It does not wait again when a client that used it before
// connects after that TTL.
func TestFlush_GrantsNothingForOneTTL(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store, config := openServer(t, server), protocol.Config{Capacity: 1, TTL: shortTTL}
	sessiontest.Begin(t, store, "db", config)
	server.Must("FLUSHALL")
	fresh := sessiontest.Begin(t, openServer(t, server), "other", config)
	if r := fresh.Send(sessiontest.Acquire(1, 1)); len(r.Results) > 0 {
		t.Error("granted at once")
	}
	fresh.AwaitGrant(10 * time.Second)
	openAgain(t, store, "db", config).Granted(1, sessiontest.Acquire(1, 1))
}

// TestRestart_HoldersKeepPersistedLeases checks that holders keep their leases across a
// restart of a server with persistence.
func TestRestart_HoldersKeepPersistedLeases(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	store, config := openServer(t, server), protocol.Config{Capacity: 2, TTL: shortTTL}
	holder, waiter := sessiontest.Begin(t, store, "db", config), sessiontest.Begin(t, store, "db", config)
	lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
	waiter.Send()
	server.Restart()
	openAgain(t, store, "other", config)
	if r := holder.Send(); len(r.Results) > 0 {
		t.Errorf("%+v", r)
	}
	waiter.Send(sessiontest.Acquire(1, 1))
	for began := time.Now(); len(waiter.Send().Results) == 0; time.Sleep(20 * time.Millisecond) {
		holder.Send()
		if time.Since(began) > time.Minute {
			t.Fatal("nothing is granted within a minute")
		}
	}
	sessiontest.WantHeld(t, store, "db", lease, waiter.LastLease())
	holder.Send(sessiontest.Release(lease))
}

// TestFailover_PrimaryPromotedAgainIsANewRun checks that a primary that was a replica in
// between counts as a new run, though it is the same process.
func TestFailover_PrimaryPromotedAgainIsANewRun(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	store, config := p.open(t), protocol.Config{Capacity: 1, TTL: shortTTL}
	sessiontest.Begin(t, store, "db", config)
	p.catchUp()
	// The replica is promoted, and the primary follows it.
	p.replica.Promote()
	p.primary.Must("REPLICAOF", "127.0.0.1", fmt.Sprint(p.replica.Port))
	p.primary.Await("master_link_status:up", "INFO", "replication")
	p.proxy.Retarget(p.replica.Address)
	p.proxy.Cut()
	begun := openAgain(t, store, "db", config)
	begun.Send(sessiontest.Acquire(1, 1))
	begun.AwaitGrant(10 * time.Second)
	p.primary.CatchUp(p.replica)
	p.primary.Must("REPLICAOF", "127.0.0.1", "1")
	begun.Send(sessiontest.Release(begun.LastLease()))
	sent := time.Now()
	begun.Granted(1, sessiontest.Acquire(2, 1)) // the first primary lacks this lease
	p.replica.Kill()
	p.primary.Promote()
	p.proxy.Retarget(p.primary.Address)
	p.proxy.Cut()
	fresh := openAgain(t, p.open(t), "db", config)
	fresh.Send(sessiontest.Acquire(1, 1))
	begun.WantUnknown()
	fresh.AwaitGrant(10 * time.Second)
	if passed := time.Since(sent); passed < leaseValidity+shortPromotion {
		t.Errorf("granted %v after the lease that was lost", passed)
	}
}

// TestFailover_BySentinelNeverExceedsTheCapacity uses a semaphore from several clients
// during a failover by Sentinel. The permits held at a time, by the clients' own clocks,
// never exceed the capacity.
func TestFailover_BySentinelNeverExceedsTheCapacity(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	redistest.Replica(t, primary)
	sentinels := redistest.Sentinels(t, 3, primary.Port)
	var addresses []string
	for _, s := range sentinels {
		addresses = append(addresses, s.Address)
	}
	u := fmt.Sprintf("redis://%s?sentinel=main&addrs=%s&promotion=1s", addresses[0], strings.Join(addresses[1:], ","))
	const capacity = 3
	var holding, most, grants atomic.Int64
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range 3 {
		client := fleet.New(openURL(t, u))
		semaphore, err := client.Semaphore("db", capacity, fleet.TTL(1500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					permit, err := semaphore.Acquire(ctx, 1)
					if err != nil {
						if ctx.Err() == nil && !errors.Is(err, sema.ErrUnavailable) {
							t.Error(err)
						}
						continue
					}
					n := holding.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					select {
					case <-permit.Lost():
					case <-time.After(20 * time.Millisecond):
					}
					holding.Add(-1)
					permit.Release()
					grants.Add(1)
				}
			})
		}
		t.Cleanup(func() {
			closing, stop := context.WithTimeout(context.Background(), 5*time.Second)
			defer stop()
			_ = client.Close(closing)
		})
	}
	time.Sleep(700 * time.Millisecond)
	before := grants.Load()
	primary.Kill()
	for began := time.Now(); grants.Load() < before+50; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Error("nothing is granted within a minute")
			break
		}
	}
	cancel()
	wg.Wait()
	if most.Load() > capacity || before == 0 {
		t.Errorf("up to %d holders, want at most %d; %d grants before the failover, want some", most.Load(), capacity, before)
	}
}
