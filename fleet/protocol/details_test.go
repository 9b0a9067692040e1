package protocol_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/sema-go/sema/fleet/protocol"
)

// configure applies a change to the current configuration.
func (e *testStore) configure(change func(*protocol.Config)) {
	e.t.Helper()
	c := e.state.Snapshot().Config
	change(&c)
	if _, err := e.state.Configure(e.now, c); err != nil {
		e.t.Fatal(err)
	}
}

// wantWoken fails the test unless exactly these sessions were woken since the last call of Woken.
func (e *testStore) wantWoken(want ...protocol.Session) {
	e.t.Helper()
	if got := e.state.Woken(); !slices.Equal(got, want) {
		e.t.Fatalf("woke %v, want %v", got, want)
	}
}

func TestNew_NumbersStartAboveTheTime(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	id := e.open()
	lease := wantResults(t, e.send(id, acquire(1, 1)), protocol.Granted)[0].Lease
	if lease <= protocol.Seq(e.now) || id <= protocol.Session(e.now) {
		t.Errorf("lease %d and session %d at %d: numbers of a deleted semaphore whose tombstone was lost may be as high", lease, id, e.now)
	}
}

func TestConfig_CheckRejectsInvalidValues(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * 3600_000 * ms
	good := protocol.Config{Kind: protocol.Rate, Capacity: protocol.MaxCapacity, Ramp: protocol.MaxCapacity, TTL: year, Window: year}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for what, corrupt := range map[string]func(*protocol.Config){
		"capacity":  func(c *protocol.Config) { c.Capacity++ },
		"ramp":      func(c *protocol.Config) { c.Ramp++ },
		"TTL":       func(c *protocol.Config) { c.TTL++ },
		"window":    func(c *protocol.Config) { c.Window++ },
		"no window": func(c *protocol.Config) { c.Window = 0 },
		"kind":      func(c *protocol.Config) { c.Kind = protocol.Rate + 1 },
		"whole":     func(c *protocol.Config) { c.Whole = 1 },
	} {
		c := good
		corrupt(&c)
		if c.Check() == nil {
			t.Errorf("%s: %+v is accepted", what, c)
		}
	}
}

func TestState_VitalReportsWhatMustBeStored(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 4})
	id := e.open()
	lease := wantResults(t, e.send(id, acquire(1, 2)), protocol.Granted)[0].Lease
	held := wantResults(t, e.send(id, acquire(2, 2)), protocol.Granted)[0].Lease
	e.send(id)
	e.state.Track()
	for _, step := range []struct {
		what  string
		do    func()
		vital bool
	}{
		{"a heartbeat", func() { e.send(id) }, false},
		{"an inspection", func() { e.now += ms; e.state.Inspect(e.now) }, false},
		{"a session", func() { e.open() }, true},
		{"a ticket", func() { e.send(id, acquire(3, 3)) }, true},
		{"a cancelled ticket", func() { e.send(id, protocol.Op{Verb: protocol.Cancel, Ticket: 3}) }, true},
		{"a rejection", func() { e.send(id, acquire(4, 9)) }, true},
		{"its acknowledgement", func() { e.send(id) }, false},
		{"a partial release", func() { e.send(id, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 1}) }, true},
		{"a release", func() { e.send(id, release(lease)) }, true},
		{"a change of the configuration", func() { e.configure(func(c *protocol.Config) { c.MaxWaiters = 7 }) }, true},
		{"a revocation", func() { e.state.Revoke(e.now, held, false, "") }, true},
		{"the same revocation again", func() { e.state.Revoke(e.now, held, false, "") }, false},
		{"the end of a session", func() { e.state.Apply(e.now, protocol.Batch{Session: id, Seq: 100, End: true}) }, true},
	} {
		step.do()
		if got := e.state.Vital(); got != step.vital {
			t.Errorf("%s: vital is %v", step.what, got)
		}
		e.state.Changes()
	}
}

func TestState_WaiterPollsAfterAGap(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1, Ramp: 10})
	expired, first, id := e.open(), e.open(), e.open()
	e.send(expired, acquire(1, 1))
	e.send(first, acquire(1, 1))
	e.send(id, acquire(1, 1))
	e.now += ttl / 4 // the semaphore's clock follows by a sixth of a TTL
	if r := e.send(id); r.Next != ttl/6 {
		t.Errorf("next batch in %d, want %d: other sessions may be gone", r.Next, ttl/6)
	}
	e.now += ttl / 12
	if r := e.send(id); r.Next != 0 {
		t.Errorf("next batch in %d, want 0: there was no gap, and others are first", r.Next)
	}
}

func TestState_OnlyTheFirstTicketPollsForTime(t *testing.T) {
	// The session of the first ticket is notified when its grant is due. Other sessions do not poll for it.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 0, Ramp: 10})
	first, id := e.open(), e.open()
	e.send(first, acquire(1, 1))
	e.send(id, acquire(1, 1))
	e.configure(func(c *protocol.Config) { c.Capacity = 4 })
	e.wantWoken(first)
	e.now += 10 * ms
	e.send(id)
	e.wantWoken() // already notified
	e.configure(func(c *protocol.Config) { c.Capacity = 0 })
	e.now += ttl / 4
	e.configure(func(c *protocol.Config) { c.Capacity, c.Ramp = 4, 2 }) // the first is due in 500 ms
	e.state.Woken()
	e.now += ttl / 4
	if r := e.send(id); r.Next != ttl/6 {
		t.Errorf("next batch in %d, want %d", r.Next, ttl/6)
	}
	if r := e.send(first); r.Next != 500*ms-ttl/4 {
		t.Errorf("next batch in %d, want %d", r.Next, 500*ms-ttl/4)
	}
}

func TestState_AcknowledgedRevocationFreesForTheSameBatch(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	id := e.open()
	lease := wantResults(t, e.send(id, acquire(1, 1)), protocol.Granted)[0].Lease
	e.state.Revoke(e.now, lease, false, "")
	wantResults(t, e.send(id), protocol.Revoked)
	wantResults(t, e.send(id, try(2, 1)), protocol.Granted) // the batch acknowledges the revocation
}

func TestState_DoesNotRecallWhileEnoughIsFree(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 4})
	pool, other := e.open(), e.open()
	wantResults(t, e.send(pool, block(1, 2, 2)), protocol.Granted)
	e.state.Woken()
	wantResults(t, e.send(other, acquire(1, 1)), protocol.Granted)
	e.wantWoken()
}

func TestState_RecallsOnlyBlocks(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	holder, waiter := e.open(), e.open()
	wantResults(t, e.send(holder, acquire(1, 1)), protocol.Granted)
	e.send(waiter, acquire(1, 1))
	if r := e.send(holder); r.Recall || r.Share != 0 {
		t.Errorf("%+v: recalled without blocks", r)
	}
	e.wantWoken()
}

func TestState_DrainLeavesNoShare(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 4})
	holder := e.open()
	wantResults(t, e.send(holder, block(1, 4, 1)), protocol.Granted)
	e.configure(func(c *protocol.Config) { c.Draining = true })
	if r := e.send(holder); !r.Recall || r.Share != 0 {
		t.Errorf("recalled: %v, share %d", r.Recall, r.Share)
	}
}

func TestState_NotifiesAgainForLaterResults(t *testing.T) {
	// A notification may be lost, so a later result causes another one.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 2})
	holder, waiter := e.open(), e.open()
	results := wantResults(t, e.send(holder, acquire(1, 1), acquire(2, 1)), protocol.Granted, protocol.Granted)
	e.send(waiter, acquire(1, 1), acquire(2, 1))
	for _, f := range results {
		e.send(holder, release(f.Lease))
		e.wantWoken(waiter)
	}
}

var _ = reflect.DeepEqual

func TestNew_StartsAtFullCapacity(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 4, Ramp: 1})
	wantResults(t, e.send(e.open(), acquire(1, 4)), protocol.Granted)
}

func TestState_RecallsAgainForALaterWaiter(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 4})
	holder, waiter := e.open(), e.open()
	wantResults(t, e.send(holder, block(1, 4, 1)), protocol.Granted)
	for ticket := range protocol.Ticket(3) {
		e.send(waiter, acquire(ticket+1, 1))
		e.wantWoken(holder)
		if ticket == 0 && !e.send(holder).Recall {
			t.Error("not recalled")
		}
		e.send(waiter, protocol.Op{Verb: protocol.Cancel, Ticket: ticket + 1}) // the holder gets no notification of this
	}
}

func TestState_NotifiesOnceOfADrain(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*protocol.Config){
		func(c *protocol.Config) { c.Draining = true },
		func(c *protocol.Config) { c.Capacity = 2 },
	} {
		e := newTestStore(t, protocol.Config{Capacity: 4})
		holder, other := e.open(), e.open()
		wantResults(t, e.send(holder, block(1, 4, 1)), protocol.Granted)
		e.configure(change)
		e.wantWoken(holder)
		for range 3 {
			e.send(other)
			e.wantWoken() // already notified
		}
	}
}

func TestState_ReleasesServeTheQueueBeforeLaterOps(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 2, MaxWaiters: 1})
	holder, waiter := e.open(), e.open()
	results := wantResults(t, e.send(holder, acquire(1, 1), acquire(2, 1)), protocol.Granted, protocol.Granted)
	e.send(waiter, acquire(1, 1))
	// The first release grants the queued ticket, and the second one leaves room for the try.
	wantResults(t, e.send(holder, release(results[0].Lease), release(results[1].Lease), try(3, 1)), protocol.Granted)
	wantResults(t, e.send(waiter), protocol.Granted)
}

func TestState_OnlyBlocksAreGrantedInPart(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 3})
	id := e.open()
	wantResults(t, e.send(id, acquire(1, 1)), protocol.Granted)
	wantResults(t, e.send(id, protocol.Op{Verb: protocol.Acquire, Ticket: 2, Weight: 3, Least: 1}))
}

func TestState_GrantsNothingToExpiredSessions(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	for range 20 { // more than one call ends
		e.open()
	}
	expired, holder := e.open(), e.open()
	lease := wantResults(t, e.send(holder, acquire(1, 1)), protocol.Granted)[0].Lease
	e.send(expired, acquire(1, 1))
	for range 6 {
		e.now += ttl / 6
		e.send(holder)
	}
	e.now += ttl / 6
	r := e.send(holder, release(lease))
	if s := e.state.Snapshot(); len(s.Leases) != 0 || !r.More {
		t.Errorf("%+v was granted; more: %v", s.Leases, r.More)
	}
}

func TestState_GrantsTicketsUpToTheirDeadline(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	holder, id := e.open(), e.open()
	lease := wantResults(t, e.send(holder, acquire(1, 1)), protocol.Granted)[0].Lease
	e.send(id, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 1, Wait: 100 * ms})
	e.now += 100 * ms
	e.send(holder, release(lease))
	wantResults(t, e.send(id), protocol.Granted)
}

func TestState_TimedOutTicketDoesNotBlockTheQueue(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 3})
	holder, heavy, light := e.open(), e.open(), e.open()
	wantResults(t, e.send(holder, acquire(1, 2)), protocol.Granted)
	e.send(heavy, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 3, Wait: 100 * ms})
	wantResults(t, e.send(light, acquire(1, 1)))
	e.now += 101 * ms
	wantResults(t, e.send(light), protocol.Granted)
	wantResults(t, e.send(heavy), protocol.TimedOut)
}

func TestState_OwnTicketsDoNotLimitABlock(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 12})
	a, b := e.open(), e.open()
	lease := wantResults(t, e.send(b, acquire(1, 12)), protocol.Granted)[0].Lease
	e.send(a, block(1, 10, 1), block(2, 10, 1))
	e.send(b, release(lease))
	results := wantResults(t, e.send(a), protocol.Granted, protocol.Granted)
	if results[0].Weight != 10 || results[1].Weight != 2 {
		t.Errorf("%d and %d, want 10 and what is left", results[0].Weight, results[1].Weight)
	}
}

func TestState_IgnoresNegativeRelease(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 3})
	id := e.open()
	lease := wantResults(t, e.send(id, acquire(1, 2)), protocol.Granted)[0].Lease
	e.send(id, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: -1})
	if s := e.state.Snapshot(); s.InUse != 2 || s.Leases[0].Weight != 2 {
		t.Errorf("%d in use, by %+v", s.InUse, s.Leases)
	}
}

func TestState_SplitKeepsTimeAndDetails(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 5})
	id := e.open()
	op := block(1, 5, 5)
	op.Details = &protocol.Details{Holder: "job"}
	whole := wantResults(t, e.send(id, op), protocol.Granted)[0].Lease
	e.now += 100 * ms
	part := wantResults(t, e.send(id, protocol.Op{Verb: protocol.Split, Lease: whole, Ticket: 2, Weight: 2}), protocol.Granted)[0].Lease
	want := []protocol.LeaseInfo{
		{Seq: whole, Session: id, Weight: 3, Since: e.now - 100*ms, Pooled: true, Details: protocol.Details{Holder: "job"}},
		{Seq: part, Session: id, Weight: 2, Since: e.now - 100*ms, Pooled: true, Details: protocol.Details{Holder: "job"}},
	}
	if got := e.state.Snapshot().Leases; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestFence_IsExactUpToMaxFenced(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: protocol.MaxFenced + 1})
	id := e.open()
	var ops []protocol.Op
	for i := range protocol.Ticket(protocol.MaxFenced) {
		ops = append(ops, acquire(i+1, 1))
	}
	if results := e.send(id, ops...).Results; len(results) != protocol.MaxFenced || !results[len(results)-1].Fence.Exact {
		t.Errorf("%d grants, and the last fence is not exact", len(results))
	}
	f := wantResults(t, e.send(id, acquire(protocol.MaxFenced+1, 1)), protocol.Granted)[0].Fence
	if f.Exact || len(f.Revoked) > 0 || f.Floor != f.Seq-protocol.MaxFenced {
		t.Errorf("%+v: exact with more than MaxFenced leases", f)
	}
}

func TestFence_OfEndedLeaseListsLiveOnes(t *testing.T) {
	// A lease may have ended before its holder receives the result.
	t.Parallel()
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 9))
		e := newTestStore(t, protocol.Config{Capacity: 20})
		id := e.open()
		b := protocol.Batch{Session: id, Seq: 1}
		for i := range protocol.Ticket(20) {
			b.Ops = append(b.Ops, acquire(i+1, 1))
		}
		r := e.state.Apply(e.now, b)
		for _, f := range r.Results {
			if rng.IntN(2) == 0 {
				e.state.Revoke(e.now, f.Lease, true, "")
			}
		}
		again := e.state.Apply(e.now, b)
		again.Results = again.Results[:len(r.Results)] // without the revocations
		checkFences(t, e, again)
		for _, f := range again.Results {
			if n := len(f.Fence.Revoked); n > 0 && f.Fence.Revoked[n-1].To >= f.Lease {
				t.Fatalf("%+v lists later leases", f.Fence)
			}
		}
	}
}

// TestOp_IsSmall bounds the size of an operation: a batch of hundreds is copied several times
// between a client and a store.
func TestOp_IsSmall(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(protocol.Op{}); size > 64 {
		t.Errorf("an operation takes %d bytes, want 64 at most", size)
	}
}

func TestDetails_NilIsEmpty(t *testing.T) {
	t.Parallel()
	var none *protocol.Details
	if text := none.Encode() + none.String(); text != "" {
		t.Errorf("text %q", text)
	}
	e := newTestStore(t, protocol.Config{Capacity: 1})
	e.send(e.open(), acquire(1, 1), acquire(2, 1))
	now := e.state.Snapshot()
	if now.Leases[0].Details != (protocol.Details{}) || now.Queue[0].Details != (protocol.Details{}) {
		t.Errorf("%+v", now)
	}
	restored, err := protocol.Restore(e.state.Image())
	if err != nil || !reflect.DeepEqual(restored.Snapshot(), now) {
		t.Errorf("%+v, want %+v: %v", restored.Snapshot(), now, err)
	}
}
