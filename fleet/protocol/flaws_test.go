package protocol_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

func TestState_ClockStepsDoNotEndLeasesEarly(t *testing.T) {
	// Steps of the store's clock: alone, with a late heartbeat, and back and forth.
	t.Parallel()
	for _, steps := range [][]protocol.Micros{
		{ttl * 9 / 10},
		{ttl * 2 / 5, 0},
		{3600_000 * ms, -3600_000 * ms},
		{3600_000 * ms, 3600_000 * ms},
		{math.MaxInt32 * ms, -math.MaxInt32 * ms},
	} {
		e := newTestStore(t, protocol.Config{Capacity: 1})
		holder, other := e.open(), e.open()
		wantResults(t, e.send(holder, acquire(1, 1)), protocol.Granted)
		e.send(other, acquire(1, 1))
		for range 20 { // two thirds of a TTL without a batch of the holder
			e.now += ttl * 2 / 3 / 20
			if len(steps) > 0 {
				e.now += steps[0]
				steps = steps[1:]
			}
			wantResults(t, e.send(other))
		}
		wantStatus(t, e.send(holder), protocol.Applied)
	}
}

func TestState_EndsExpiredSessionsInPortions(t *testing.T) {
	// More sessions have expired than one call ends.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 100})
	live := e.open()
	for i := range 60 {
		wantResults(t, e.send(e.open(), acquire(protocol.Ticket(i), 1)), protocol.Granted)
	}
	waiting := false
	for range 7 {
		e.now += ttl / 6
		e.send(live)
	}
	r := e.send(live, acquire(1, 90))
	for calls := 0; r.More; calls++ {
		waiting = true
		if len(r.Results) > 0 || calls > 10 {
			t.Fatalf("call %d: %+v", calls, r)
		}
		r = e.send(live)
	}
	wantResults(t, r, protocol.Granted)
	if !waiting {
		t.Error("one call ended all expired sessions")
	}
}

func TestState_RepeatedBatchGetsTheReplyAndRenewsNothing(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 2})
	id := e.open()
	b := protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}}
	first := e.state.Apply(e.now, b)
	wantResults(t, first, protocol.Granted)
	for range 20 {
		e.now += ttl / 10
		again := e.state.Apply(e.now, b)
		if again.Status == protocol.Unknown {
			return
		}
		wantStatus(t, again, protocol.Repeated)
		if !reflect.DeepEqual(again.Results, first.Results) {
			t.Fatalf("%+v, want %+v", again.Results, first.Results)
		}
		if inUse := e.state.Snapshot().InUse; inUse != 1 {
			t.Fatalf("%d in use", inUse)
		}
	}
	t.Error("the session has not expired")
}

func TestState_RejectsOlderBatches(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	id := e.open()
	e.send(id, acquire(1, 1))
	e.send(id)
	wantStatus(t, e.state.Apply(e.now, protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(2, 1)}}), protocol.Stale)
	if waiting := len(e.state.Snapshot().Queue); waiting != 0 {
		t.Errorf("%d queued", waiting)
	}
}

func TestState_RepeatedBatchDoesNotReviveASession(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	id, other := e.open(), e.open()
	b := protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}}
	e.state.Apply(e.now, b)
	for range 8 {
		e.now += ttl / 6
		e.send(other)
	}
	wantStatus(t, e.state.Apply(e.now, b), protocol.Unknown)
	wantStatus(t, e.state.Apply(e.now, protocol.Batch{Session: 77, Seq: 1, Ops: b.Ops}), protocol.Unknown)
	wantResults(t, e.send(other, try(1, 1)), protocol.Granted)
}

func TestState_IgnoresBatchesOfExpiredSessions(t *testing.T) {
	// A batch of an expired session that was not removed yet is not applied.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 100})
	other := e.open()
	for range 40 {
		e.open()
	}
	late := e.open()
	for range 6 {
		e.now += ttl / 6
		e.send(other)
	}
	e.now += ttl / 6
	wantStatus(t, e.send(late, acquire(1, 1)), protocol.Unknown)
}

func TestState_ReportsEveryRejection(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 2, MaxWaiters: 1})
	holder, waiter := e.open(), e.open()
	wantResults(t, e.send(holder, acquire(1, 2)), protocol.Granted)
	wantResults(t, e.send(waiter, acquire(1, 2), acquire(2, 1), acquire(3, 3), acquire(4, 0), try(5, 1)),
		protocol.QueueFull, protocol.TooLarge, protocol.Invalid, protocol.Full)
	c := e.state.Snapshot().Config
	c.Capacity = 1
	if _, err := e.state.Configure(e.now, c); err != nil {
		t.Fatal(err)
	}
	wantResults(t, e.send(waiter), protocol.TooLarge)
	e.send(waiter, acquire(6, 1))
	c = e.state.Snapshot().Config
	c.Draining = true
	if _, err := e.state.Configure(e.now, c); err != nil {
		t.Fatal(err)
	}
	wantResults(t, e.send(waiter, acquire(7, 1)), protocol.Draining, protocol.Draining)
	if _, err := e.state.Configure(e.now, protocol.Config{TTL: ttl, Version: 1}); !errors.Is(err, protocol.ErrConflict) {
		t.Error(err)
	}
}

func TestFence_ListsLeasesReleasedInBetween(t *testing.T) {
	// A former holder may still have a write in flight.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 4})
	id := e.open()
	leases := wantResults(t, e.send(id, acquire(1, 1), acquire(2, 1), acquire(3, 1)), protocol.Granted, protocol.Granted, protocol.Granted)
	e.send(id, release(leases[1].Lease))
	f := wantResults(t, e.send(id, acquire(4, 1)), protocol.Granted)[0].Fence
	want := protocol.Fence{
		Seq: leases[2].Lease + 1, Floor: leases[0].Lease, Exact: true,
		Revoked: []protocol.Range{{From: leases[1].Lease, To: leases[1].Lease}},
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("%+v, want %+v", f, want)
	}
}

func TestState_SeqsRiseAfterDeletion(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	id := e.open()
	for ticket := range protocol.Ticket(1000) {
		lease := wantResults(t, e.send(id, acquire(ticket+1, 1)), protocol.Granted)[0].Lease
		e.send(id, release(lease))
	}
	again, err := protocol.New(e.now-3600_000*ms, protocol.Config{Capacity: 1, TTL: ttl}, e.state.Tombstone())
	if err != nil {
		t.Fatal(err)
	}
	if again.Tombstone() < e.state.Tombstone() {
		t.Errorf("starts at %d, after %d", again.Tombstone(), e.state.Tombstone())
	}
}

func TestState_NotifiesTheFirstTicketOfGrantsByTime(t *testing.T) {
	// Grants by time alone: a ramp.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 0, Ramp: 10})
	a, b := e.open(), e.open()
	e.send(a, acquire(1, 1))
	e.send(b, acquire(1, 1))
	c := e.state.Snapshot().Config
	c.Capacity = 2
	e.state.Woken()
	if _, err := e.state.Configure(e.now, c); err != nil {
		t.Fatal(err)
	}
	if woken := e.state.Woken(); !slices.Equal(woken, []protocol.Session{a}) {
		t.Fatalf("woken %v, want the session of the first ticket", woken)
	}
	if r := e.send(a); r.Next != 100*ms {
		t.Fatalf("next batch in %d, want 100 ms", r.Next)
	}
	e.now += 100 * ms
	wantResults(t, e.send(a), protocol.Granted)
	if woken := e.state.Woken(); !slices.Contains(woken, b) {
		t.Errorf("woken %v, want the next", woken)
	}
	if r := e.send(b); r.Next != 100*ms {
		t.Errorf("next batch in %d, want 100 ms", r.Next)
	}
}

func TestState_RateReturnsByTimeAlone(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Kind: protocol.Rate, Capacity: 3, Window: 1000 * ms})
	id := e.open()
	results := wantResults(t, e.send(id, acquire(1, 2)), protocol.Granted)
	e.now += 200 * ms
	r := e.send(id, release(results[0].Lease), acquire(2, 2))
	wantResults(t, r)
	if r.Next != min(800*ms, ttl/6) {
		t.Errorf("next batch in %d", r.Next)
	}
	e.now += 799 * ms
	wantResults(t, e.send(id))
	e.now += 1 * ms
	wantResults(t, e.send(id), protocol.Granted)
	e.now -= 3600_000 * ms // a clock that steps back costs at most a window
	wantResults(t, e.send(id, acquire(3, 3)))
	e.now += 1000 * ms
	wantResults(t, e.send(id), protocol.Granted)
}

func TestState_CancelReleasesUnseenGrant(t *testing.T) {
	// A cancel releases a lease whose grant the client has not received.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	id := e.open()
	e.state.Apply(e.now, protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}})
	r := e.state.Apply(e.now, protocol.Batch{Session: id, Seq: 2, Ops: []protocol.Op{{Verb: protocol.Cancel, Ticket: 1}}})
	wantResults(t, r)
	if inUse := e.state.Snapshot().InUse; inUse != 0 {
		t.Errorf("%d in use", inUse)
	}
}

func TestState_SplitCreatesALease(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 5})
	id := e.open()
	whole := wantResults(t, e.send(id, acquire(1, 5)), protocol.Granted)[0].Lease
	split := func(ticket protocol.Ticket, weight int64) protocol.Op {
		return protocol.Op{Verb: protocol.Split, Lease: whole, Ticket: ticket, Weight: weight}
	}
	part := wantResults(t, e.send(id, split(2, 2)), protocol.Granted)[0].Lease
	wantResults(t, e.send(id, split(3, 3), split(4, 0), split(5, 99)), protocol.Invalid, protocol.Invalid, protocol.Invalid)
	e.send(id, release(whole))
	if inUse := e.state.Snapshot().InUse; inUse != 2 {
		t.Errorf("%d in use", inUse)
	}
	e.send(id, release(part))
	if inUse := e.state.Snapshot().InUse; inUse != 0 {
		t.Errorf("%d in use", inUse)
	}
}

func TestState_RecallsPooledBlocksOnce(t *testing.T) {
	// Pooled blocks are recalled once when others wait, and may be released in part.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 10})
	pool, other := e.open(), e.open()
	r := e.send(pool, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 10, Pooled: true})
	block := wantResults(t, r, protocol.Granted)[0].Lease
	if r.Recall {
		t.Error("recalled although no ticket waits")
	}
	e.state.Woken()
	e.send(other, acquire(1, 3))
	if woken := e.state.Woken(); !slices.Equal(woken, []protocol.Session{pool}) {
		t.Errorf("woken %v, want the pool", woken)
	}
	e.send(other)
	if woken := e.state.Woken(); len(woken) != 0 {
		t.Errorf("woken %v a second time", woken)
	}
	if r := e.send(pool); !r.Recall {
		t.Error("not recalled")
	}
	r = e.send(pool, protocol.Op{Verb: protocol.Release, Lease: block, Weight: 4})
	if r.Recall {
		t.Error("recalled although no ticket waits")
	}
	wantResults(t, e.send(other), protocol.Granted)
	if s := e.state.Snapshot(); s.InUse != 9 || s.Leases[0].Weight != 6 {
		t.Errorf("%+v", s)
	}
}

func TestState_TicketTimesOut(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	holder, id := e.open(), e.open()
	lease := wantResults(t, e.send(holder, acquire(1, 1)), protocol.Granted)[0].Lease
	e.send(id, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 1, Wait: 100 * ms})
	e.now += 101 * ms
	e.send(holder, release(lease))
	wantResults(t, e.send(id), protocol.TimedOut)
}

func TestState_EndFreesEverything(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	id, other := e.open(), e.open()
	e.send(id, acquire(1, 1), acquire(2, 1))
	e.send(other, acquire(1, 1))
	wantStatus(t, e.state.Apply(e.now, protocol.Batch{Session: id, Seq: 2, End: true}), protocol.Applied)
	wantResults(t, e.send(other), protocol.Granted)
	wantStatus(t, e.send(id), protocol.Unknown)
}

func TestState_OneNotificationForEachGrant(t *testing.T) {
	// Each grant causes one notification, whatever the number of waiters.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	const waiters = 1000
	holder := e.open()
	lease := wantResults(t, e.send(holder, acquire(1, 1)), protocol.Granted)[0].Lease
	for range waiters {
		e.send(e.open(), acquire(1, 1))
	}
	e.state.Woken()
	messages := 0
	for range waiters {
		e.send(holder, release(lease))
		woken := e.state.Woken()
		messages += len(woken)
		holder = woken[0]
		lease = wantResults(t, e.send(holder), protocol.Granted)[0].Lease
		messages += len(e.state.Woken())
	}
	if messages != waiters {
		t.Errorf("%d messages for %d grants", messages, waiters)
	}
}

func TestState_RevokedLeaseCannotBeSplit(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 4})
	id := e.open()
	lease := wantResults(t, e.send(id, acquire(1, 4)), protocol.Granted)[0].Lease
	e.state.Revoke(e.now, lease, false, "")
	wantResults(t, e.send(id, protocol.Op{Verb: protocol.Split, Lease: lease, Ticket: 2, Weight: 3}, protocol.Op{Verb: protocol.Cancel}),
		protocol.Revoked, protocol.Invalid)
	e.send(id)
	if inUse := e.state.Snapshot().InUse; inUse != 0 {
		t.Errorf("%d in use", inUse)
	}
}
