package etcdstore

import (
	"io/fs"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

// TestStore_ConformsWhileRepliesAreLost checks that writes whose replies were lost are found
// again, so that callers do not notice connections that break. On a busy machine connections
// break again before they are of use, so calls are retried for as long as the test may run.
func TestStore_ConformsWhileRepliesAreLost(t *testing.T) { // not in parallel: it would take much longer
	server := etcdtest.Start(t, 1)
	p := storetest.NewProxy(t, server.Nodes[0].Address)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for breakFor(p, stop, rand.N(10*time.Millisecond)) {
		}
	}()
	open := func() *Store {
		s := openBy(t, Options{Endpoints: []string{p.Address}})
		s.retryFor = time.Hour
		return s
	}
	store := &several{Store: open(), others: []*Store{open(), open()}}
	for _, c := range (fleettest.Suite{Histories: *histories}).Checks() {
		if c.Name != "behaves like the model" {
			continue
		}
		if err := c.Run(t.Context(), store); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-stopped
	if p.Lost() == 0 {
		t.Error("no reply was lost")
	}
}

// breakFor waits a while, loses all replies for d, and cuts the connections. It reports
// false once stop is closed.
func breakFor(p *storetest.Proxy, stop chan struct{}, d time.Duration) bool {
	select {
	case <-stop:
		return false
	case <-time.After(50*time.Millisecond + 8*d):
	}
	p.SetFault(storetest.Fault{LoseReplies: true})
	time.Sleep(d)
	p.Cut()
	p.Heal()
	return true
}

// TestDelete_IsDoneOnceIfTheReplyIsLost checks that a deletion is known to be done, and does
// not delete a semaphore that was created since.
func TestDelete_IsDoneOnceIfTheReplyIsLost(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	p := storetest.NewProxy(t, server.Nodes[0].Address)
	store, other := openBy(t, Options{Endpoints: []string{p.Address}}), openAt(t, server, "")
	for _, createdAgain := range []bool{false, true} {
		sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
		deletions := 0
		deleted := make(chan result)
		go func() {
			deleted <- store.do("a", &call{ctx: ctx, alone: true, act: func(_ protocol.Micros, v *view) (o result) {
				if v.state == nil {
					return result{err: fs.ErrNotExist}
				}
				if v.state = nil; v.fresh { // so that it is written next
					deletions++
					p.SetFault(storetest.Fault{LoseReplies: deletions == 1})
				}
				return o
			}})
		}()
		for err := error(nil); err == nil; _, err = other.Inspect(ctx, "a") {
			time.Sleep(time.Millisecond)
		}
		var lease protocol.Seq
		if createdAgain {
			lease = sessiontest.Begin(t, other, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))[0]
		}
		p.Cut()
		p.Heal()
		if o := <-deleted; o.err != nil || deletions != 1 {
			t.Errorf("created again: %t: after %d attempts, the deletion is not known to be done: %v", createdAgain, deletions, o.err)
		}
		if createdAgain {
			sessiontest.WantHeld(t, other, "a", lease)
		}
	}
}

// TestCall_KeepsItsName publishes a batch more than once. The reply to it is found by the
// name of the call.
func TestCall_KeepsItsName(t *testing.T) {
	t.Parallel()
	store := openBy(t, Options{Endpoints: []string{"127.0.0.1:1"}})
	s := store.semaphore("a")
	one := &call{batch: &protocol.Batch{Session: 1, Seq: 1}}
	first := &turn{semaphore: s, view: &s.view, calls: []*call{one}}
	first.publish()
	name := one.name
	if first.publish(); name == "" || one.name != name {
		t.Errorf("it was published as %q, and then as %q", name, one.name)
	}
}

// TestApply_LeavesNoKeysOfADeletedSemaphore checks that no key is left that no process would
// remove.
func TestApply_LeavesNoKeysOfADeletedSemaphore(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	one, two := openAt(t, server, ""), openAt(t, server, "")
	s := sessiontest.Begin(t, one, "a", protocol.Config{Capacity: 1})
	if err := two.Administer(ctx, "a", fleet.Command{Delete: true}); err != nil {
		t.Fatal(err)
	}
	r, err := one.Apply(ctx, "a", s.Next(sessiontest.Acquire(1, 1)))
	if err != nil || r.Status != protocol.Unknown {
		t.Errorf("%+v, %v", r, err)
	}
	if keys, _ := count(t, one, "sema/"); keys != 1 {
		t.Errorf("%d keys are left, want the floor only: %s", keys, server.Etcdctl("get", "--prefix", "--keys-only", "sema/"))
	}
}
