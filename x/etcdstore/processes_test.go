package etcdstore

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

// skewed returns a store whose wall clock is not that of others.
func skewed(t *testing.T, c *etcdtest.Cluster, by func() time.Duration) *Store {
	s := openAt(t, c, "")
	wall := s.clock.wall
	s.clock.wall = func() protocol.Micros { return wall() + protocol.Micros(by().Microseconds()) }
	return s
}

// TestStore_KeepsSessionsIfClocksDiffer sends each batch from a clock that is an hour before
// or after the last one's. A holder that renews just in time keeps its lease.
func TestStore_KeepsSessionsIfClocksDiffer(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	var step atomic.Int64
	stores := []*Store{
		skewed(t, server, func() time.Duration { return time.Hour }), skewed(t, server, func() time.Duration { return -time.Hour }),
		skewed(t, server, func() time.Duration { return time.Duration(step.Add(1)) * time.Hour }), // it steps whenever it is read
	}
	const ttl = 1200 * time.Millisecond
	config := protocol.Config{Capacity: 1, TTL: protocol.Micros(ttl.Microseconds())}
	holder, waiter := sessiontest.Begin(t, stores[0], "a", config), sessiontest.Begin(t, stores[1], "a", config)
	lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
	waiter.Send(sessiontest.Acquire(1, 1))
	for range 3 {
		for sent := time.Now(); time.Since(sent) < ttl*2/3-100*time.Millisecond; time.Sleep(10 * time.Millisecond) {
			for _, by := range stores[1:] {
				if r := waiter.SendTo(by); len(r.Results) > 0 {
					t.Fatal("the holder renews, and the waiter has its permit")
				}
			}
			if _, err := stores[2].Inspect(ctx, "a"); err != nil {
				t.Fatal(err)
			}
		}
		holder.Send()
	}
	sessiontest.WantHeld(t, stores[1], "a", lease)

	// Once the holder stops renewing, any process notices that it has expired.
	stopped := time.Now()
	for len(waiter.SendTo(stores[2]).Results) == 0 {
		if time.Since(stopped) > 3*ttl+time.Minute {
			t.Fatal("the expired holder is not noticed")
		}
		time.Sleep(ttl / 12)
	}
	if took := time.Since(stopped); took < ttl*5/6 {
		t.Errorf("it expired after %v, with a TTL of %v", took, ttl)
	} else {
		t.Logf("it was noticed after %v, with a TTL of %v", took, ttl)
	}
}

// TestRate_BurstsOnceIfAClockIsAhead checks that a clock that is ahead costs one burst, and
// that the rate continues when that clock is gone.
func TestRate_BurstsOnceIfAClockIsAhead(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	right, ahead := openAt(t, server, ""), skewed(t, server, func() time.Duration { return time.Hour })
	const window = 1500 * time.Millisecond
	config := protocol.Config{Kind: protocol.Rate, Capacity: 2, Window: protocol.Micros(window.Microseconds())}
	a, b := sessiontest.Begin(t, right, "a", config), sessiontest.Begin(t, ahead, "a", config)
	start, granted, ticket := time.Now(), 0, protocol.Ticket(0)
	for time.Since(start) < 2*window {
		for _, s := range []*sessiontest.Session{a, b} {
			ticket++
			op := sessiontest.Acquire(ticket, 1)
			op.Try = true
			for _, f := range s.Send(op).Results {
				if f.Kind == protocol.Granted {
					granted++
				}
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	// In two windows and a little: three times two, and a burst of two.
	if granted < 4 || granted > 8 {
		t.Errorf("%d were granted in two windows of 2", granted)
	}
}

// TestStore_NoticesTimeThatWasNotMeasured starts an hourly job after the previous one has
// crashed. It gets its permit though no process ran in between to measure the time.
func TestStore_NoticesTimeThatWasNotMeasured(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	config := protocol.Config{Capacity: 1, TTL: 600_000}
	sessiontest.Begin(t, openAt(t, server, ""), "a", config).Granted(1, sessiontest.Acquire(1, 1)) // then it crashes
	job := sessiontest.Begin(t, skewed(t, server, func() time.Duration { return time.Hour }), "a", config)
	op := sessiontest.Acquire(1, 1)
	op.Try = true
	r := job.Send(op)
	for polls := 0; r.Results[0].Kind != protocol.Granted; polls++ {
		if r.Undecided == 0 || polls > 24 {
			t.Fatalf("%+v after %d polls, undecided for %d", r.Results, polls, r.Undecided)
		}
		time.Sleep(time.Duration(min(r.Undecided, config.TTL/6)) * time.Microsecond)
		op.Ticket++
		r = job.Send(op)
	}
}

// TestCombine_AppliesPublishedBatches checks that they are applied once, replied to, and
// removed.
func TestCombine_AppliesPublishedBatches(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	one, two := openAt(t, server, ""), openAt(t, server, "")
	a, b := sessiontest.Begin(t, one, "a", protocol.Config{Capacity: 5}), sessiontest.Begin(t, two, "a", protocol.Config{Capacity: 5})
	published := b.Next(sessiontest.Acquire(1, 2))
	server.Etcdctl("put", "sema/batch/a first", encode([]publicBatch{{"first-1", newBatchRow(published)}}))
	server.Etcdctl("put", "sema/batch/a other", "nonsense")
	server.Etcdctl("put", "sema/batch/a third", `[{"name":"third-1","batch":{"session":1,"key":"00000000000000000000000000000000","seq":1,"ops":[{"verb":1,"details":"of a newer version"}]}}]`)
	a.Send() // one did not know what two wrote, fails, and reads the publications
	if keys, _ := count(t, one, "sema/batch/"); keys != 0 {
		t.Error("publications are left")
	}
	log := server.Etcdctl("get", "--prefix", "--print-value-only", "--order", "DESCEND", "--limit", "1", "sema/log/a ")
	if !strings.Contains(log, `"replies":[{"to":"first-1","reply":{"status":0,"results":[{"n":1,"kind":1,"ticket":1,"fence":{"seq":`) {
		t.Errorf("there is no reply in %s", log)
	}
	// The process that published it may send it again itself.
	if r, err := two.Apply(ctx, "a", published); err != nil || r.Status != protocol.Repeated || len(r.Results) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestStore_NotifiesManyInstances notifies more than fit into a transaction.
func TestStore_NotifiesManyInstances(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store := openAt(t, server, "")
	const many = maxNotifications + 30
	config := protocol.Config{Capacity: 0, TTL: sessiontest.TTL, Protocol: protocol.Version}
	client, err := store.connection.client(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range many {
		instance := fmt.Sprintf("instance %d/ü", i)
		if _, err := client.Put(ctx, store.keys.notify(instance), ""); err != nil {
			t.Fatal(err)
		}
		id, _, err := store.Open(ctx, "a", config, sessiontest.Opener(instance))
		if err == nil {
			_, err = store.Apply(ctx, "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 1, Ops: []protocol.Op{sessiontest.Acquire(1, 1)}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	config.Capacity, config.Version = many, 1
	if err := store.Administer(ctx, "a", fleet.Command{Configure: &config}); err != nil {
		t.Fatal(err)
	}
	store.workers.Wait()
	if keys, bytes := count(t, store, "sema/notify/"); keys != many || bytes != many {
		t.Errorf("%d instances listen, %d were notified", keys, bytes)
	}
}

// TestStore_SupportsRollingUpgrades uses a semaphore from a client of the next version of
// the protocol and from one of this version.
func TestStore_SupportsRollingUpgrades(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	old, next := openAt(t, server, ""), openAt(t, server, "")
	config := protocol.Config{Capacity: 1, TTL: sessiontest.TTL, Protocol: protocol.Version}
	a := sessiontest.Begin(t, old, "a", config)
	config.Protocol++
	id, made, err := next.Open(ctx, "a", config, sessiontest.Opener("the next version"))
	if err != nil || made.Protocol != protocol.Version {
		t.Fatalf("%+v, %v", made, err)
	}
	b := sessiontest.Opened(t, next, "a", id)
	lease := a.Granted(1, sessiontest.Acquire(1, 1))[0]
	r := b.Send(sessiontest.Acquire(1, 1), protocol.Op{Verb: 77, Ticket: 2}) // the second verb is new
	if len(r.Results) != 1 || r.Results[0].Kind != protocol.Invalid {
		t.Errorf("%+v", r.Results)
	}
	a.Send(sessiontest.Release(lease))
	b.Send(sessiontest.Release(b.Granted(1)[0]))
	config.Version = 1
	if err := next.Administer(ctx, "a", fleet.Command{Configure: &config}); err != nil {
		t.Fatal(err)
	}
	a.Send(sessiontest.Release(a.Granted(1, sessiontest.Acquire(2, 1))[0])) // the versions are still adjacent
	config.Protocol++
	_, _, err = next.Open(ctx, "a", config, sessiontest.Opener("the one after"))
	if err != nil {
		t.Error(err)
	}
	config.Protocol = protocol.Version + 3
	_, _, err = next.Open(ctx, "a", config, sessiontest.Opener("too new"))
	storetest.WantError(t, err, protocol.ErrVersion.Error())
}

// TestPace_DoesNotCountTimeTwice checks that time which a new process takes from its wall
// clock is not added again by a process that has measured it.
func TestPace_DoesNotCountTimeTwice(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	old := openAt(t, server, "")
	config := protocol.Config{Capacity: 1, TTL: 60_000_000}
	a := sessiontest.Begin(t, old, "a", config)
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		sessiontest.Begin(t, openAt(t, server, ""), "a", config)
	}
	a.Send()
	if ahead := time.Until(old.semaphore("a").view.head.Changed); ahead > 0 {
		t.Errorf("the semaphore is ahead of all clocks by %v", ahead)
	}
}

// TestRevoke_IsWrittenTheSecondTime revokes a block twice. The second revocation is written,
// though the model does not note that the session has no block to return any more.
func TestRevoke_IsWrittenTheSecondTime(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store, other := openAt(t, server, ""), openAt(t, server, "")
	config := protocol.Config{Capacity: 2}
	holder, waiter := sessiontest.Begin(t, store, "a", config), sessiontest.Begin(t, other, "a", config)
	for n := range protocol.Ticket(fewRows) { // so that entries are not complete
		sessiontest.Begin(t, store, "a", config).Send(protocol.Op{Verb: protocol.Cancel, Ticket: n})
	}
	lease := holder.Granted(1, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 2, Least: 1, Pooled: true})[0]
	waiter.Send(sessiontest.Acquire(1, 2))
	for _, atOnce := range []bool{false, true} {
		if err := store.Administer(ctx, "a", fleet.Command{Revoke: &fleet.Revocation{Lease: lease, AtOnce: atOnce}}); err != nil {
			t.Fatal(err)
		}
	}
	waiter.Granted(1)
}
