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

// A pair is a primary and a replica, and a proxy that clients go through to
// whichever is the primary.
type pair struct {
	primary, replica *redistest.Server
	proxy            *enginetest.Proxy
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{primary: redistest.Start(t)}
	p.replica = redistest.Replica(t, p.primary)
	p.proxy = enginetest.NewProxy(t, p.primary.Address)
	return p
}

func (p *pair) open(t *testing.T) *Store {
	t.Helper()
	return openAt(t, Options{Addresses: []string{p.proxy.Address}, Promotion: shortPromotion})
}

// catchUp waits until the replica has everything.
func (p *pair) catchUp() { p.replica.CatchUp(p.primary) }

// lag has the replica hear nothing more.
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
	trust          = 800 * time.Millisecond // two thirds of the TTL
	// silence is for how long a server that was promoted grants nothing.
	silence = time.Duration(shortTTL)*time.Microsecond + shortPromotion
)

// reopen begins a session as soon as the connections are made again.
func reopen(t *testing.T, s *Store, name string, c protocol.Config) *sessiontest.Session {
	t.Helper()
	c.Protocol = protocol.Version
	for range 100 {
		if id, _, err := s.Open(ctx, name, c, sessiontest.Opener("reopened")); err == nil {
			return sessiontest.Opened(t, s, name, id)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the new primary is not reached")
	return nil
}

// What the old primary has acknowledged and the new one does not know is honoured
// for as long as anybody may trust in it.
func TestNothingIsGrantedOverALeaseThatWasLost(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	store, config := p.open(t), protocol.Config{Capacity: 2, TTL: shortTTL}
	kept, lost := sessiontest.Begin(t, store, "db", config), sessiontest.Begin(t, store, "db", config)
	old := kept.Granted(1, sessiontest.Acquire(1, 1))[0]
	kept.Say()
	p.catchUp()
	p.lag()
	sent := time.Now()
	gone := lost.Granted(1, sessiontest.Acquire(1, 1))[0]
	p.failOver()

	// Another process, that knows nothing of it.
	met := time.Now()
	waiter := reopen(t, p.open(t), "db", config)
	if r := waiter.Say(sessiontest.Acquire(1, 1)); len(r.Results) > 0 {
		t.Fatalf("granted at once: %+v", r.Results)
	}
	kept.Say() // it has lost nothing
	lost.WantUnknown()
	for {
		kept.Say()
		r := waiter.Say()
		if len(r.Results) == 0 {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if passed := time.Since(sent); passed < trust+shortPromotion {
			t.Errorf("granted %v after the lease that was lost", passed)
		}
		if passed := time.Since(met); passed < silence {
			t.Errorf("granted %v after the promotion, want %v: who was cut off may still answer others", passed, silence)
		}
		fence := r.Results[0].Fence
		if fence.Seq <= gone || fence.Floor != old {
			t.Errorf("%+v after leases %d and %d", fence, old, gone)
		}
		var guard fleet.Guard
		if guard.Admit(fence) != nil || guard.Admit(protocol.Fence{Seq: gone, Floor: old, Exact: true}) == nil {
			t.Error("the guard does not refuse the lease that was lost")
		}
		break
	}
	sessiontest.WantHeld(t, store, "db", old, waiter.LastLease())
}

// A session that the new primary knows, but not all it has said and heard, holds
// what that does not know of.
func TestASessionOfWhichSomethingWasLostIsNotKnown(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	store, config := p.open(t), protocol.Config{Capacity: 5, TTL: shortTTL}
	said, heard, repeated := sessiontest.Begin(t, store, "db", config), sessiontest.Begin(t, store, "db", config), sessiontest.Begin(t, store, "db", config)
	holder := sessiontest.Begin(t, store, "db", config)
	lease := holder.Granted(1, sessiontest.Acquire(1, 5))[0]
	said.Say()
	for _, s := range []*sessiontest.Session{heard, repeated} {
		s.Say(sessiontest.Acquire(1, 1))
	}
	p.catchUp()
	p.lag()
	said.Say(sessiontest.Acquire(1, 1))
	holder.Say(sessiontest.Release(lease))
	// It hears of its grant in the answer to a batch that it repeats, since the
	// first answer was late.
	r, err := store.Apply(ctx, "db", protocol.Batch{Owner: sessiontest.Owner, Session: heard.ID, Seq: heard.Seq})
	if err != nil || r.Status != protocol.Repeated || len(heard.Hear(r).Results) != 1 {
		t.Fatal(r, err)
	}
	p.failOver()
	reopen(t, store, "db", config)
	said.WantUnknown()
	holder.WantUnknown()
	heard.WantUnknown()
	r, err = store.Apply(ctx, "db", protocol.Batch{Owner: sessiontest.Owner, Session: repeated.ID, Seq: repeated.Seq})
	if err != nil || r.Status != protocol.Repeated {
		t.Errorf("a batch whose answer did not come: status %d, %v", r.Status, err)
	}
	repeated.Say()
}

// A semaphore that the new primary has never heard of may be in use.
func TestASemaphoreThatWasLostIsNotTakenForANewOne(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	store, config := p.open(t), protocol.Config{Capacity: 1, TTL: shortTTL}
	sessiontest.Begin(t, store, "other", config)
	p.catchUp()
	p.lag()
	sent := time.Now()
	lost := sessiontest.Begin(t, store, "db", config).Granted(1, sessiontest.Acquire(1, 1))[0]
	p.failOver()
	fresh := reopen(t, p.open(t), "db", config)
	fresh.Say(sessiontest.Acquire(1, 1))
	result := fresh.AwaitGrant(10 * time.Second)
	if passed := time.Since(sent); passed < trust+shortPromotion {
		t.Errorf("granted %v after the lease that was lost", passed)
	}
	if result.Lease <= lost {
		t.Errorf("lease %d after %d", result.Lease, lost)
	}
	time.Sleep(time.Duration(shortTTL)*time.Microsecond + shortPromotion)
	later := reopen(t, store, "later", config)
	later.Granted(1, sessiontest.Acquire(1, 1)) // at once: nobody can trust in anything any more
}

// A server that comes back empty is told so by who has seen it before.
func TestAServerThatHasForgottenEverythingIsTold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store, config := openServer(t, server), protocol.Config{Capacity: 1, TTL: shortTTL}
	sent := time.Now()
	holder := sessiontest.Begin(t, store, "db", config)
	holder.Granted(1, sessiontest.Acquire(1, 1))
	server.Restart()
	fresh := reopen(t, store, "db", config)
	holder.WantUnknown()
	fresh.Say(sessiontest.Acquire(1, 1))
	fresh.AwaitGrant(10 * time.Second)
	if passed := time.Since(sent); passed < trust {
		t.Errorf("granted %v after the lease that was lost", passed)
	}
}

// One that comes back empty grants nothing for a TTL, though nobody who comes has
// been there before.
func TestAServerThatHasForgottenEverythingKnowsThatItIsNew(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := protocol.Config{Capacity: 1, TTL: shortTTL}
	sent := time.Now()
	sessiontest.Begin(t, openServer(t, server), "db", config).Granted(1, sessiontest.Acquire(1, 1))
	server.Restart()
	newcomer := openServer(t, server)
	fresh := sessiontest.Begin(t, newcomer, "db", config)
	fresh.Say(sessiontest.Acquire(1, 1))
	fresh.AwaitGrant(10 * time.Second)
	if passed := time.Since(sent); passed < trust {
		t.Errorf("granted %v after the lease that was lost", passed)
	}
	// By then it is old enough for everybody.
	sessiontest.Begin(t, newcomer, "other", config).Granted(1, sessiontest.Acquire(1, 1))
}

// It grants nothing to those either who were not there before. One who was there comes
// when that is over, and is not waited for again.
func TestAServerThatHasForgottenEverythingIsToldLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store, config := openServer(t, server), protocol.Config{Capacity: 1, TTL: shortTTL}
	sessiontest.Begin(t, store, "db", config)
	server.Must("FLUSHALL")
	fresh := sessiontest.Begin(t, openServer(t, server), "other", config)
	if r := fresh.Say(sessiontest.Acquire(1, 1)); len(r.Results) > 0 {
		t.Error("granted at once")
	}
	fresh.AwaitGrant(10 * time.Second)
	reopen(t, store, "db", config).Granted(1, sessiontest.Acquire(1, 1))
}

// Who comes back with its data goes on, for those who hold.
func TestHoldersOutliveARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	store, config := openServer(t, server), protocol.Config{Capacity: 2, TTL: shortTTL}
	holder, waiter := sessiontest.Begin(t, store, "db", config), sessiontest.Begin(t, store, "db", config)
	lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
	waiter.Say()
	server.Restart()
	reopen(t, store, "other", config)
	if r := holder.Say(); len(r.Results) > 0 {
		t.Errorf("%+v", r)
	}
	waiter.Say(sessiontest.Acquire(1, 1))
	for began := time.Now(); len(waiter.Say().Results) == 0; time.Sleep(20 * time.Millisecond) {
		holder.Say()
		if time.Since(began) > time.Minute {
			t.Fatal("nothing is granted any more")
		}
	}
	sessiontest.WantHeld(t, store, "db", lease, waiter.LastLease())
	holder.Say(sessiontest.Release(lease))
}

// A primary that was a replica in between is a new one, though it is the same
// process.
func TestWhoIsPromotedAgainIsNotTakenForWhoItWas(t *testing.T) {
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
	begun := reopen(t, store, "db", config)
	begun.Say(sessiontest.Acquire(1, 1))
	begun.AwaitGrant(10 * time.Second)
	p.primary.CatchUp(p.replica)
	p.primary.Must("REPLICAOF", "127.0.0.1", "1")
	begun.Say(sessiontest.Release(begun.LastLease()))
	sent := time.Now()
	begun.Granted(1, sessiontest.Acquire(2, 1)) // which the first one will not know
	p.replica.Kill()
	p.primary.Promote()
	p.proxy.Retarget(p.primary.Address)
	p.proxy.Cut()
	fresh := reopen(t, p.open(t), "db", config)
	fresh.Say(sessiontest.Acquire(1, 1))
	begun.WantUnknown()
	fresh.AwaitGrant(10 * time.Second)
	if passed := time.Since(sent); passed < trust+shortPromotion {
		t.Errorf("granted %v after the lease that was lost", passed)
	}
}

// Clients of several processes go through a failover by Sentinel. Who holds by its
// own clock is never more than there may be.
func TestAFailoverBySentinelAdmitsNobodyTooMany(t *testing.T) {
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
			t.Error("nothing is granted any more")
			break
		}
	}
	cancel()
	wg.Wait()
	if most.Load() > capacity || before == 0 {
		t.Errorf("%d held %d permits at a time; %d grants before the failover", most.Load(), capacity, before)
	}
}
