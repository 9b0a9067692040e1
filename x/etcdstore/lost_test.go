package etcdstore

import (
	"io/fs"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/etcdtest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// TestConformsWhileAnswersAreLost: what was written and not heard of is found
// again, so that nobody can tell connections that break from others.
func TestConformsWhileAnswersAreLost(t *testing.T) { // alone, or it takes longer than a call is tried again
	server := etcdtest.Start(t, 1)
	p := enginetest.NewProxy(t, server.Nodes[0].Address)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for breakFor(p, stop, rand.N(10*time.Millisecond)) {
		}
	}()
	open := func() *Store { return openBy(t, Options{Endpoints: []string{p.Address}}) }
	store := &several{Store: open(), others: []*Store{open(), open()}}
	for _, c := range (fleettest.Suite{Histories: *histories}).Checks() {
		if c.Name != "behaves like the model" {
			continue
		}
		if err := c.Run(limited(t, 5*time.Minute), store); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-stopped
	if p.Lost() == 0 {
		t.Error("no answer was lost")
	}
}

// breakFor loses all answers for a while, and then the connections, every now
// and then; until it is to stop.
func breakFor(p *enginetest.Proxy, stop chan struct{}, d time.Duration) bool {
	select {
	case <-stop:
		return false
	case <-time.After(50*time.Millisecond + 8*d):
	}
	p.SetFault(enginetest.Fault{LoseReplies: true})
	time.Sleep(d)
	p.Cut()
	p.Heal()
	return true
}

// TestADeletionWhoseAnswerIsLost is known to be done, and not done again to what
// somebody has made since.
func TestADeletionWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	p := enginetest.NewProxy(t, server.Nodes[0].Address)
	store, other := openBy(t, Options{Endpoints: []string{p.Address}}), openAt(t, server, "")
	for _, madeAgain := range []bool{false, true} {
		sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
		deletions := 0
		deleted := make(chan outcome)
		go func() {
			deleted <- store.do("a", &call{ctx: ctx, alone: true, act: func(_ protocol.Micros, v *view) (o outcome) {
				if v.state == nil {
					return outcome{err: fs.ErrNotExist}
				}
				if v.state = nil; v.fresh { // so that it is written next
					deletions++
					p.SetFault(enginetest.Fault{LoseReplies: deletions == 1})
				}
				return o
			}})
		}()
		for err := error(nil); err == nil; _, err = other.Inspect(ctx, "a") {
			time.Sleep(time.Millisecond)
		}
		var lease protocol.Seq
		if madeAgain {
			lease = sessiontest.Begin(t, other, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))[0]
		}
		p.Cut()
		p.Heal()
		if o := <-deleted; o.err != nil || deletions != 1 {
			t.Errorf("made again: %t: after %d attempts, what was done is not known to be: %v", madeAgain, deletions, o.err)
		}
		if madeAgain {
			sessiontest.WantHeld(t, other, "a", lease)
		}
	}
}

// TestACallKeepsItsName: by its name the reply to a published batch is found, which may
// be published more than once.
func TestACallKeepsItsName(t *testing.T) {
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

// TestWhatIsSaidToADeletedSemaphore leaves nothing behind that nobody would clear
// away.
func TestWhatIsSaidToADeletedSemaphore(t *testing.T) {
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
