package protocol_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

// configure changes the configuration by its last version.
func (e *engine) configure(change func(*protocol.Config)) {
	e.t.Helper()
	c := e.state.Snapshot().Config
	change(&c)
	if _, err := e.state.Configure(e.now, c); err != nil {
		e.t.Fatal(err)
	}
}

// wantWoken fails the test unless these were woken since it was last asked.
func (e *engine) wantWoken(want ...protocol.Session) {
	e.t.Helper()
	if got := e.state.Woken(); !slices.Equal(got, want) {
		e.t.Fatalf("woke %v, want %v", got, want)
	}
}

func TestALifeBeginsAfterItsTime(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1})
	id := e.open()
	lease := wantResults(t, e.say(id, acquire(1, 1)), protocol.Granted)[0].Lease
	if lease <= protocol.Seq(e.now) || id <= protocol.Session(e.now) {
		t.Errorf("lease %d and session %d at %d: those of a life whose tombstone was lost may have been as high", lease, id, e.now)
	}
}

func TestConfigurationsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * 3600_000 * ms
	good := protocol.Config{Kind: protocol.Rate, Capacity: protocol.MaxCapacity, Ramp: protocol.MaxCapacity, TTL: year, Window: year}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*protocol.Config){
		"capacity": func(c *protocol.Config) { c.Capacity++ },
		"ramp":     func(c *protocol.Config) { c.Ramp++ },
		"TTL":      func(c *protocol.Config) { c.TTL++ },
		"window":   func(c *protocol.Config) { c.Window++ },
		"nothing":  func(c *protocol.Config) { c.Window = 0 },
		"kind":     func(c *protocol.Config) { c.Kind = protocol.Rate + 1 },
		"whole":    func(c *protocol.Config) { c.Whole = 1 },
	} {
		c := good
		spoil(&c)
		if c.Check() == nil {
			t.Errorf("%s: %+v is accepted", what, c)
		}
	}
}

func TestWhatMustNotBeForgottenIsVital(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 4})
	id := e.open()
	lease := wantResults(t, e.say(id, acquire(1, 2)), protocol.Granted)[0].Lease
	held := wantResults(t, e.say(id, acquire(2, 2)), protocol.Granted)[0].Lease
	e.say(id)
	e.state.Track()
	for _, step := range []struct {
		what  string
		do    func()
		vital bool
	}{
		{"a sign of life", func() { e.say(id) }, false},
		{"a look", func() { e.now += ms; e.state.Inspect(e.now) }, false},
		{"a session", func() { e.open() }, true},
		{"a ticket", func() { e.say(id, acquire(3, 3)) }, true},
		{"a ticket taken back", func() { e.say(id, protocol.Op{Verb: protocol.Cancel, Ticket: 3}) }, true},
		{"a refusal", func() { e.say(id, acquire(4, 9)) }, true},
		{"its acknowledgement", func() { e.say(id) }, false},
		{"a part given back", func() { e.say(id, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 1}) }, true},
		{"a lease given back", func() { e.say(id, release(lease)) }, true},
		{"a change", func() { e.configure(func(c *protocol.Config) { c.MaxWaiters = 7 }) }, true},
		{"a revocation", func() { e.state.Revoke(e.now, held, false, "") }, true},
		{"the same again", func() { e.state.Revoke(e.now, held, false, "") }, false},
		{"an end", func() { e.state.Apply(e.now, protocol.Batch{Session: id, Seq: 100, End: true}) }, true},
	} {
		step.do()
		if got := e.state.Vital(); got != step.vital {
			t.Errorf("%s: vital is %v", step.what, got)
		}
		e.state.Changes()
	}
}

func TestWhoClosesAGapLooksAgainSoon(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1, Ramp: 10})
	dead, first, id := e.open(), e.open(), e.open()
	e.say(dead, acquire(1, 1))
	e.say(first, acquire(1, 1))
	e.say(id, acquire(1, 1))
	e.now += ttl / 4 // of which the semaphore's clock follows a sixth of a TTL
	if r := e.say(id); r.Next != ttl/6 {
		t.Errorf("told to speak in %d, want %d: nobody else may be there to look", r.Next, ttl/6)
	}
	e.now += ttl / 12
	if r := e.say(id); r.Next != 0 {
		t.Errorf("told to speak in %d: there was no gap, and others are before it", r.Next)
	}
}

// The first is told when its time comes. Others need not watch for it.
func TestOnlyTheFirstWatchesTheTime(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 0, Ramp: 10})
	first, id := e.open(), e.open()
	e.say(first, acquire(1, 1))
	e.say(id, acquire(1, 1))
	e.configure(func(c *protocol.Config) { c.Capacity = 4 })
	e.wantWoken(first)
	e.now += 10 * ms
	e.say(id)
	e.wantWoken() // it was told
	e.configure(func(c *protocol.Config) { c.Capacity = 0 })
	e.now += ttl / 4
	e.configure(func(c *protocol.Config) { c.Capacity, c.Ramp = 4, 2 }) // the first is due in 500 ms
	e.state.Woken()
	e.now += ttl / 4
	if r := e.say(id); r.Next != ttl/6 {
		t.Errorf("told to speak in %d, want %d", r.Next, ttl/6)
	}
	if r := e.say(first); r.Next != 500*ms-ttl/4 {
		t.Errorf("told to speak in %d, want %d", r.Next, 500*ms-ttl/4)
	}
}

func TestWhatIsGivenUpIsThereForTheSameBatch(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1})
	id := e.open()
	lease := wantResults(t, e.say(id, acquire(1, 1)), protocol.Granted)[0].Lease
	e.state.Revoke(e.now, lease, false, "")
	wantResults(t, e.say(id), protocol.Revoked)
	wantResults(t, e.say(id, try(2, 1)), protocol.Granted) // which acknowledges
}

func TestNobodyIsRecalledForWhatIsFree(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 4})
	pool, other := e.open(), e.open()
	wantResults(t, e.say(pool, block(1, 2, 2)), protocol.Granted)
	e.state.Woken()
	wantResults(t, e.say(other, acquire(1, 1)), protocol.Granted)
	e.wantWoken()
}

func TestOnlyBlocksAreRecalled(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1})
	holder, waiter := e.open(), e.open()
	wantResults(t, e.say(holder, acquire(1, 1)), protocol.Granted)
	e.say(waiter, acquire(1, 1))
	if r := e.say(holder); r.Recall || r.Share != 0 {
		t.Errorf("%+v: it has no blocks", r)
	}
	e.wantWoken()
}

func TestNoShareIsKeptFromADrain(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 4})
	holder := e.open()
	wantResults(t, e.say(holder, block(1, 4, 1)), protocol.Granted)
	e.configure(func(c *protocol.Config) { c.Draining = true })
	if r := e.say(holder); !r.Recall || r.Share != 0 {
		t.Errorf("recalled: %v, and may keep %d", r.Recall, r.Share)
	}
}

// A hint may be lost, so news that come later are worth another one.
func TestLaterNewsAreHintedAgain(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 2})
	holder, waiter := e.open(), e.open()
	results := wantResults(t, e.say(holder, acquire(1, 1), acquire(2, 1)), protocol.Granted, protocol.Granted)
	e.say(waiter, acquire(1, 1), acquire(2, 1))
	for _, f := range results {
		e.say(holder, release(f.Lease))
		e.wantWoken(waiter)
	}
}

var _ = reflect.DeepEqual

func TestANewSemaphoreDoesNotRise(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 4, Ramp: 1})
	wantResults(t, e.say(e.open(), acquire(1, 4)), protocol.Granted)
}

func TestWhoWaitsLaterIsWorthAnotherRecall(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 4})
	holder, waiter := e.open(), e.open()
	wantResults(t, e.say(holder, block(1, 4, 1)), protocol.Granted)
	for ticket := range protocol.Ticket(3) {
		e.say(waiter, acquire(ticket+1, 1))
		e.wantWoken(holder)
		if ticket == 0 && !e.say(holder).Recall {
			t.Error("not recalled")
		}
		e.say(waiter, protocol.Op{Verb: protocol.Cancel, Ticket: ticket + 1}) // of which it does not hear
	}
}

func TestADrainIsToldOnce(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*protocol.Config){
		func(c *protocol.Config) { c.Draining = true },
		func(c *protocol.Config) { c.Capacity = 2 },
	} {
		e := newEngine(t, protocol.Config{Capacity: 4})
		holder, other := e.open(), e.open()
		wantResults(t, e.say(holder, block(1, 4, 1)), protocol.Granted)
		e.configure(change)
		e.wantWoken(holder)
		for range 3 {
			e.say(other)
			e.wantWoken() // it knows
		}
	}
}

func TestWhatABatchFreesGoesToTheFirstBeforeItAsksAgain(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 2, MaxWaiters: 1})
	holder, waiter := e.open(), e.open()
	results := wantResults(t, e.say(holder, acquire(1, 1), acquire(2, 1)), protocol.Granted, protocol.Granted)
	e.say(waiter, acquire(1, 1))
	// The one in line is served by what is released before, and others find room.
	wantResults(t, e.say(holder, release(results[0].Lease), release(results[1].Lease), try(3, 1)), protocol.Granted)
	wantResults(t, e.say(waiter), protocol.Granted)
}

func TestOnlyABlockMayBeLess(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 3})
	id := e.open()
	wantResults(t, e.say(id, acquire(1, 1)), protocol.Granted)
	wantResults(t, e.say(id, protocol.Op{Verb: protocol.Acquire, Ticket: 2, Weight: 3, Least: 1}))
}

func TestNothingIsGrantedToTheDead(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1})
	for range 20 { // more than are cleared away at a time
		e.open()
	}
	dead, holder := e.open(), e.open()
	lease := wantResults(t, e.say(holder, acquire(1, 1)), protocol.Granted)[0].Lease
	e.say(dead, acquire(1, 1))
	for range 6 {
		e.now += ttl / 6
		e.say(holder)
	}
	e.now += ttl / 6
	r := e.say(holder, release(lease))
	if s := e.state.Snapshot(); len(s.Leases) != 0 || !r.More {
		t.Errorf("%+v has been granted, and there is more: %v", s.Leases, r.More)
	}
}

func TestATicketIsServedUpToItsDeadline(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1})
	holder, id := e.open(), e.open()
	lease := wantResults(t, e.say(holder, acquire(1, 1)), protocol.Granted)[0].Lease
	e.say(id, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 1, Wait: 100 * ms})
	e.now += 100 * ms
	e.say(holder, release(lease))
	wantResults(t, e.say(id), protocol.Granted)
}

func TestWhoHasGivenUpIsInNobodysWay(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 3})
	holder, heavy, light := e.open(), e.open(), e.open()
	wantResults(t, e.say(holder, acquire(1, 2)), protocol.Granted)
	e.say(heavy, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 3, Wait: 100 * ms})
	wantResults(t, e.say(light, acquire(1, 1)))
	e.now += 101 * ms
	wantResults(t, e.say(light), protocol.Granted)
	wantResults(t, e.say(heavy), protocol.TimedOut)
}

func TestABlockIsNotLessForOnesOwnSake(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 12})
	a, b := e.open(), e.open()
	lease := wantResults(t, e.say(b, acquire(1, 12)), protocol.Granted)[0].Lease
	e.say(a, block(1, 10, 1), block(2, 10, 1))
	e.say(b, release(lease))
	results := wantResults(t, e.say(a), protocol.Granted, protocol.Granted)
	if results[0].Weight != 10 || results[1].Weight != 2 {
		t.Errorf("%d and %d, want 10 and what is left", results[0].Weight, results[1].Weight)
	}
}

func TestNobodyReleasesLessThanNothing(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 3})
	id := e.open()
	lease := wantResults(t, e.say(id, acquire(1, 2)), protocol.Granted)[0].Lease
	e.say(id, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: -1})
	if s := e.state.Snapshot(); s.InUse != 2 || s.Leases[0].Weight != 2 {
		t.Errorf("%d in use, by %+v", s.InUse, s.Leases)
	}
}

func TestAPartIsAsOldAsTheWhole(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 5})
	id := e.open()
	op := block(1, 5, 5)
	op.Details.Holder = "who"
	whole := wantResults(t, e.say(id, op), protocol.Granted)[0].Lease
	e.now += 100 * ms
	part := wantResults(t, e.say(id, protocol.Op{Verb: protocol.Split, Lease: whole, Ticket: 2, Weight: 2}), protocol.Granted)[0].Lease
	want := []protocol.LeaseInfo{
		{Seq: whole, Session: id, Weight: 3, Since: e.now - 100*ms, Pooled: true, Details: protocol.Details{Holder: "who"}},
		{Seq: part, Session: id, Weight: 2, Since: e.now - 100*ms, Pooled: true, Details: protocol.Details{Holder: "who"}},
	}
	if got := e.state.Snapshot().Leases; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestAFenceIsExactForAsManyAsItSays(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: protocol.MaxFenced + 1})
	id := e.open()
	var ops []protocol.Op
	for i := range protocol.Ticket(protocol.MaxFenced) {
		ops = append(ops, acquire(i+1, 1))
	}
	if results := e.say(id, ops...).Results; len(results) != protocol.MaxFenced || !results[len(results)-1].Fence.Exact {
		t.Errorf("%d grants, and the last fence is not exact", len(results))
	}
	f := wantResults(t, e.say(id, acquire(protocol.MaxFenced+1, 1)), protocol.Granted)[0].Fence
	if f.Exact || len(f.Revoked) > 0 || f.Floor != f.Seq-protocol.MaxFenced {
		t.Errorf("%+v, of more than are told", f)
	}
}

// A lease may be gone before its holder has heard of it.
func TestFencesOfTheGoneTellTheLiveToo(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 9))
		e := newEngine(t, protocol.Config{Capacity: 20})
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
				t.Fatalf("%+v tells of what came later", f.Fence)
			}
		}
	}
}
