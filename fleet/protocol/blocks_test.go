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

func TestABlockIsAsLargeAsOthersAllow(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 12})
	a, b, c := e.open(), e.open(), e.open()
	if f := wantResults(t, e.say(a, block(1, 100, 1)), protocol.Granted)[0]; f.Weight != 12 {
		t.Errorf("%d of 12 for who is alone", f.Weight)
	}
	lease := e.state.Snapshot().Leases[0].Seq
	e.say(b, block(1, 100, 2))
	e.say(c, block(1, 100, 1))
	e.say(a, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 1})
	wantResults(t, e.say(b)) // one is too little for b, and c is behind it
	e.say(a, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 8})
	if f := wantResults(t, e.say(b), protocol.Granted)[0]; f.Weight != 4 {
		t.Errorf("%d while others wait, want the even share of 4", f.Weight)
	}
	if f := wantResults(t, e.say(c), protocol.Granted)[0]; f.Weight != 5 {
		t.Errorf("%d for the last in line, want what was left", f.Weight)
	}
}

func TestABlockIsNeverLessThanWillDo(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 6})
	a, b := e.open(), e.open()
	lease := wantResults(t, e.say(a, acquire(1, 6)), protocol.Granted)[0].Lease
	e.say(a, block(2, 6, 5)) // more than the even share
	e.say(b, acquire(1, 1))
	e.say(a, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 4})
	wantResults(t, e.say(b))
	if f := wantResults(t, e.say(a, release(lease)), protocol.Granted)[0]; f.Weight != 5 {
		t.Errorf("%d, want 5", f.Weight)
	}
	wantResults(t, e.say(b), protocol.Granted)
}

func TestBlocksAreRecalledOnceForAsLongAsOthersWait(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 4})
	holder, waiter, last := e.open(), e.open(), e.open()
	lease := wantResults(t, e.say(holder, block(1, 4, 1)), protocol.Granted)[0].Lease
	woken := func(want ...protocol.Session) {
		t.Helper()
		if got := e.state.Woken(); !slices.Equal(got, want) {
			t.Errorf("woke %v, want %v", got, want)
		}
	}
	woken()
	e.say(waiter, acquire(1, 1))
	woken(holder)
	e.say(last, acquire(1, 1))
	woken() // it knows
	for range 3 {
		if r := e.say(holder); !r.Recall || r.Wanted != 2 || r.First != 1 {
			t.Errorf("%+v", r)
		}
		e.say(last)
		woken()
	}
	e.say(holder, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 2})
	woken(waiter, last)
	if r := e.say(holder); r.Recall {
		t.Error("recalled, and nobody waits")
	}
	e.say(waiter, acquire(2, 1))
	woken(holder) // again
	e.say(holder, acquire(2, 1))
	e.say(waiter, protocol.Op{Verb: protocol.Cancel, Ticket: 2})
	if r := e.say(holder); r.Recall {
		t.Error("recalled for its own sake")
	}
	e.say(waiter, acquire(3, 1))
	woken(holder)
}

func TestAShareMayBeKeptUnlessTheFirstWantsMore(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 9})
	a, b, c := e.open(), e.open(), e.open()
	wantResults(t, e.say(a, block(1, 9, 1)), protocol.Granted)
	e.say(b, acquire(1, 3))
	if r := e.say(a); !r.Recall || r.Share != 3 {
		t.Errorf("%+v", r)
	}
	e.say(b, protocol.Op{Verb: protocol.Cancel, Ticket: 1})
	e.say(c, acquire(1, 4))
	if r := e.say(a); !r.Recall || r.Share != 0 {
		t.Errorf("%+v", r)
	}
}

func TestBlocksAreRecalledForADrainAndADebt(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*protocol.Config){
		func(c *protocol.Config) { c.Draining = true },
		func(c *protocol.Config) { c.Capacity = 2 },
	} {
		e := newEngine(t, protocol.Config{Capacity: 4})
		holder := e.open()
		wantResults(t, e.say(holder, block(1, 4, 1)), protocol.Granted)
		c := e.state.Snapshot().Config
		change(&c)
		if _, err := e.state.Configure(e.now, c); err != nil {
			t.Fatal(err)
		}
		if got := e.state.Woken(); !slices.Equal(got, []protocol.Session{holder}) {
			t.Errorf("woke %v", got)
		}
		if r := e.say(holder); !r.Recall {
			t.Errorf("%+v", r)
		}
	}
}

func TestAShareOfAWholeMayGrow(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 0, Whole: 5})
	a := e.open()
	wantResults(t, e.say(a, acquire(1, 6)), protocol.TooLarge)
	wantResults(t, e.say(a, acquire(2, 4)))
	c := e.state.Snapshot().Config
	c.Capacity = 3
	if _, err := e.state.Configure(e.now, c); err != nil {
		t.Fatal(err)
	}
	wantResults(t, e.say(a))
	c = e.state.Snapshot().Config
	c.Capacity = 4
	if _, err := e.state.Configure(e.now, c); err != nil {
		t.Fatal(err)
	}
	wantResults(t, e.say(a), protocol.Granted)
	c.Capacity, c.Version = 6, c.Version+1
	if _, err := e.state.Configure(e.now, c); err == nil {
		t.Error("a share larger than the whole")
	}
}

func TestNeighbouringVersionsUnderstandEachOther(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1, Protocol: 5})
	for version, ok := range map[uint32]bool{3: false, 4: true, 5: true, 6: true, 7: false} {
		_, _, err := e.state.Open(e.now, tester, version)
		if ok != (err == nil) || !ok && !errors.Is(err, protocol.ErrVersion) {
			t.Errorf("version %d of 5: %v", version, err)
		}
	}
	id := e.open5()
	wantResults(t, e.say(id, protocol.Op{Verb: 99, Ticket: 1}, acquire(2, 1)), protocol.Invalid, protocol.Granted)
	for _, to := range []struct {
		version uint32
		ok      bool
	}{{4, false}, {7, false}, {6, true}} {
		c := e.state.Snapshot().Config
		c.Protocol = to.version
		if _, err := e.state.Configure(e.now, c); to.ok != (err == nil) {
			t.Errorf("from 5 to %d: %v", to.version, err)
		}
	}
}

func (e *engine) open5() protocol.Session {
	id, _, err := e.state.Open(e.now, tester, 5)
	if err != nil {
		e.t.Fatal(err)
	}
	return id
}

func TestALookNoticesTheDead(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1})
	holder, waiter := e.open(), e.open()
	wantResults(t, e.say(holder, acquire(1, 1)), protocol.Granted)
	for range 8 {
		e.now += ttl / 6
		e.state.Inspect(e.now)
	}
	if s := e.state.Inspect(e.now); s.InUse != 0 || len(s.Sessions) != 0 {
		t.Errorf("%+v", s)
	}
	wantStatus(t, e.say(waiter), protocol.Unknown)
}

func TestAHintIsWithheldOnlyFromWhoIsAnswered(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1})
	holder, waiter := e.open(), e.open()
	lease := wantResults(t, e.say(holder, acquire(1, 1)), protocol.Granted)[0].Lease
	e.say(waiter, acquire(1, 1))
	e.state.Woken()
	e.say(holder, release(lease))
	again := protocol.Batch{Session: waiter, Seq: e.seqs[waiter]} // doubled on its way
	wantStatus(t, e.state.Apply(e.now, again), protocol.Repeated)
	if got := e.state.Woken(); !slices.Equal(got, []protocol.Session{waiter}) {
		t.Errorf("woke %v, want the waiter", got)
	}
}

func TestTrustEndsWhenTheEngineSaysSo(t *testing.T) {
	t.Parallel()
	config := protocol.Config{Capacity: 1, TTL: ttl}
	p := protocol.NewPeer(0, 1, config, tester)
	p.Wish(acquire(1, 1))
	say := func(now protocol.Micros, valid protocol.Micros) {
		b := p.Send(now, 8)
		p.Hear(now+ms, b.Seq, protocol.Reply{Config: config, Valid: valid, Results: []protocol.Result{{N: 1, Kind: protocol.Granted, Ticket: 1, Lease: 7, Weight: 1}}})
	}
	say(10*ms, ttl/4)
	if p.Deadline() != 10*ms+ttl/4 || p.Speak() > 10*ms+ttl/8 {
		t.Errorf("trusted until %d, speaks at %d", p.Deadline(), p.Speak())
	}
	say(20*ms, -1)
	if p.Deadline() != 10*ms+ttl/4 {
		t.Errorf("trusted until %d: a reply that renews nothing has", p.Deadline())
	}
	say(30*ms, ttl)
	if p.Deadline() != 30*ms+ttl*2/3 {
		t.Errorf("trusted until %d, want two thirds of a TTL", p.Deadline())
	}
	if !p.Holds(40*ms, 7) || p.Holds(p.Deadline(), 7) {
		t.Error("the lease is not held as long as it is trusted")
	}
}

func TestASplitThatCannotBeIsUndone(t *testing.T) {
	t.Parallel()
	config := protocol.Config{Capacity: 4, TTL: ttl}
	p := protocol.NewPeer(0, 1, config, tester)
	p.Wish(acquire(1, 3))
	hear := func(now protocol.Micros, f protocol.Result) {
		b := p.Send(now, 8)
		p.Hear(now, b.Seq, protocol.Reply{Config: config, Results: []protocol.Result{f}})
	}
	hear(1, protocol.Result{N: 1, Kind: protocol.Granted, Ticket: 1, Lease: 7, Weight: 3})
	p.Wish(protocol.Op{Verb: protocol.Split, Ticket: 2, Lease: 7, Weight: 2})
	hear(2, protocol.Result{N: 2, Kind: protocol.Invalid, Ticket: 2})
	p.Wish(protocol.Op{Verb: protocol.Release, Lease: 7, Weight: 2})
	if !p.Holds(3, 7) {
		t.Error("two of three were released, and nothing is left")
	}
}

func TestPromisesAreKept(t *testing.T) {
	t.Parallel()
	config := protocol.Config{Capacity: 4, TTL: ttl}
	p := protocol.NewPeer(0, 1, config, tester)
	for i := range protocol.Ticket(10) {
		p.Wish(acquire(i+1, 1))
	}
	promise := p.Promise(4)
	if promise != 3 {
		t.Fatalf("ten wishes, four at a time, are said with batch %d", promise)
	}
	for range 3 {
		if p.Replied() >= promise {
			t.Error("heard before it was said")
		}
		b := p.Send(1, 4)
		p.Wish(acquire(protocol.Ticket(100+b.Seq), 1))
		if p.Replied() != b.Seq-1 {
			t.Errorf("heard %d while %d is on its way", p.Replied(), b.Seq)
		}
		p.Hear(1, b.Seq, protocol.Reply{Config: config})
	}
	if p.Replied() != promise {
		t.Errorf("heard %d, want %d", p.Replied(), promise)
	}
}

func TestSignsOfLifeAreScattered(t *testing.T) {
	t.Parallel()
	seen := map[protocol.Micros]bool{}
	for id := range protocol.Session(100) {
		at := protocol.NewPeer(0, id, protocol.Config{TTL: ttl}, tester).Speak()
		if at > ttl/3 || at < ttl/3*7/8 {
			t.Errorf("speaks after %d of %d", at, ttl)
		}
		seen[at] = true
	}
	if len(seen) < 90 {
		t.Errorf("a hundred sessions speak at %d times", len(seen))
	}
}
