package protocol_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

func block(ticket protocol.Ticket, weight, least int64) protocol.Op {
	return protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: weight, Least: least, Pooled: true}
}

func TestState_BlockIsLimitedToTheEvenShareWhileOthersWait(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 12})
	a, b, c := e.open(), e.open(), e.open()
	if f := wantResults(t, e.send(a, block(1, 100, 1)), protocol.Granted)[0]; f.Weight != 12 {
		t.Errorf("granted %d to the only session, want 12", f.Weight)
	}
	lease := e.state.Snapshot().Leases[0].Seq
	e.send(b, block(1, 100, 2))
	e.send(c, block(1, 100, 1))
	e.send(a, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 1})
	wantResults(t, e.send(b)) // 1 is too little for b, and c is behind it
	e.send(a, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 8})
	if f := wantResults(t, e.send(b), protocol.Granted)[0]; f.Weight != 4 {
		t.Errorf("granted %d while others wait, want the even share of 4", f.Weight)
	}
	if f := wantResults(t, e.send(c), protocol.Granted)[0]; f.Weight != 5 {
		t.Errorf("granted %d to the last ticket, want the remaining 5", f.Weight)
	}
}

func TestState_BlockIsAtLeastTheLeastWeight(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 6})
	a, b := e.open(), e.open()
	lease := wantResults(t, e.send(a, acquire(1, 6)), protocol.Granted)[0].Lease
	e.send(a, block(2, 6, 5)) // more than the even share
	e.send(b, acquire(1, 1))
	e.send(a, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 4})
	wantResults(t, e.send(b))
	if f := wantResults(t, e.send(a, release(lease)), protocol.Granted)[0]; f.Weight != 5 {
		t.Errorf("%d, want 5", f.Weight)
	}
	wantResults(t, e.send(b), protocol.Granted)
}

func TestState_RecallsBlocksOnceWhileOthersWait(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 4})
	holder, waiter, last := e.open(), e.open(), e.open()
	lease := wantResults(t, e.send(holder, block(1, 4, 1)), protocol.Granted)[0].Lease
	woken := func(want ...protocol.Session) {
		t.Helper()
		if got := e.state.Woken(); !slices.Equal(got, want) {
			t.Errorf("woke %v, want %v", got, want)
		}
	}
	woken()
	e.send(waiter, acquire(1, 1))
	woken(holder)
	e.send(last, acquire(1, 1))
	woken() // the holder was already notified
	for range 3 {
		if r := e.send(holder); !r.Recall || r.Wanted != 2 || r.First != 1 {
			t.Errorf("%+v", r)
		}
		e.send(last)
		woken()
	}
	e.send(holder, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 2})
	woken(waiter, last)
	if r := e.send(holder); r.Recall {
		t.Error("recalled although no ticket waits")
	}
	e.send(waiter, acquire(2, 1))
	woken(holder) // again
	e.send(holder, acquire(2, 1))
	e.send(waiter, protocol.Op{Verb: protocol.Cancel, Ticket: 2})
	if r := e.send(holder); r.Recall {
		t.Error("recalled for its own ticket")
	}
	e.send(waiter, acquire(3, 1))
	woken(holder)
}

func TestState_ShareIsZeroIfTheFirstTicketNeedsMore(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 9})
	a, b, c := e.open(), e.open(), e.open()
	wantResults(t, e.send(a, block(1, 9, 1)), protocol.Granted)
	e.send(b, acquire(1, 3))
	if r := e.send(a); !r.Recall || r.Share != 3 {
		t.Errorf("%+v", r)
	}
	e.send(b, protocol.Op{Verb: protocol.Cancel, Ticket: 1})
	e.send(c, acquire(1, 4))
	if r := e.send(a); !r.Recall || r.Share != 0 {
		t.Errorf("%+v", r)
	}
}

func TestState_RecallsBlocksForDrainAndDebt(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*protocol.Config){
		func(c *protocol.Config) { c.Draining = true },
		func(c *protocol.Config) { c.Capacity = 2 },
	} {
		e := newTestStore(t, protocol.Config{Capacity: 4})
		holder := e.open()
		wantResults(t, e.send(holder, block(1, 4, 1)), protocol.Granted)
		c := e.state.Snapshot().Config
		change(&c)
		if _, err := e.state.Configure(e.now, c); err != nil {
			t.Fatal(err)
		}
		if got := e.state.Woken(); !slices.Equal(got, []protocol.Session{holder}) {
			t.Errorf("woke %v", got)
		}
		if r := e.send(holder); !r.Recall {
			t.Errorf("%+v", r)
		}
	}
}

func TestState_CapacityGrowsUpToTheWhole(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 0, Whole: 5})
	a := e.open()
	wantResults(t, e.send(a, acquire(1, 6)), protocol.TooLarge)
	wantResults(t, e.send(a, acquire(2, 4)))
	c := e.state.Snapshot().Config
	c.Capacity = 3
	if _, err := e.state.Configure(e.now, c); err != nil {
		t.Fatal(err)
	}
	wantResults(t, e.send(a))
	c = e.state.Snapshot().Config
	c.Capacity = 4
	if _, err := e.state.Configure(e.now, c); err != nil {
		t.Fatal(err)
	}
	wantResults(t, e.send(a), protocol.Granted)
	c.Capacity, c.Version = 6, c.Version+1
	if _, err := e.state.Configure(e.now, c); err == nil {
		t.Error("a capacity above the whole is accepted")
	}
}

func TestState_OpensSessionsOfAdjacentVersions(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1, Protocol: 5})
	for version, ok := range map[uint32]bool{3: false, 4: true, 5: true, 6: true, 7: false} {
		_, _, err := e.state.Open(e.now, tester, version)
		if ok != (err == nil) || !ok && !errors.Is(err, protocol.ErrVersion) {
			t.Errorf("version %d of 5: %v", version, err)
		}
	}
	id := e.openVersion5()
	wantResults(t, e.send(id, protocol.Op{Verb: 99, Ticket: 1}, acquire(2, 1)), protocol.Invalid, protocol.Granted)
	for _, to := range []struct {
		version uint32
		ok      bool
	}{{4, false}, {7, false}, {6, true}} {
		c := e.state.Snapshot().Config
		c.Protocol = to.version
		if _, err := e.state.Configure(e.now, c); to.ok != (err == nil) {
			t.Errorf("change from protocol 5 to %d: %v", to.version, err)
		}
	}
}

func (e *testStore) openVersion5() protocol.Session {
	id, _, err := e.state.Open(e.now, tester, 5)
	if err != nil {
		e.t.Fatal(err)
	}
	return id
}

func TestState_InspectEndsExpiredSessions(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	holder, waiter := e.open(), e.open()
	wantResults(t, e.send(holder, acquire(1, 1)), protocol.Granted)
	for range 8 {
		e.now += ttl / 6
		e.state.Inspect(e.now)
	}
	if s := e.state.Inspect(e.now); s.InUse != 0 || len(s.Sessions) != 0 {
		t.Errorf("%+v", s)
	}
	wantStatus(t, e.send(waiter), protocol.Unknown)
}

func TestState_WokenOmitsOnlySessionsThatGotAReply(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	holder, waiter := e.open(), e.open()
	lease := wantResults(t, e.send(holder, acquire(1, 1)), protocol.Granted)[0].Lease
	e.send(waiter, acquire(1, 1))
	e.state.Woken()
	e.send(holder, release(lease))
	again := protocol.Batch{Session: waiter, Seq: e.seqs[waiter]} // a duplicate
	wantStatus(t, e.state.Apply(e.now, again), protocol.Repeated)
	if got := e.state.Woken(); !slices.Equal(got, []protocol.Session{waiter}) {
		t.Errorf("woke %v, want the waiter", got)
	}
}
