package meter_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/meter"
)

// A client sends batches of one session to a meter, as a server does, with a virtual clock.
type client struct {
	t       *testing.T
	meter   *meter.Meter
	name    string
	session protocol.Session
	seq, n  uint64
	now     *time.Time
}

func at(t *testing.T, m *meter.Meter, name string, session protocol.Session) *client {
	now := time.Unix(1_800_000_000, 0)
	return &client{t: t, meter: m, name: name, session: session, now: &now}
}

var config = protocol.Config{Capacity: 8, TTL: 15_000_000}

func (c *client) send(status protocol.Status, results []protocol.Result, ops ...protocol.Op) *protocol.Batch {
	c.seq++
	b := &protocol.Batch{Session: c.session, Seq: c.seq, Ops: ops}
	for i := range results {
		c.n++
		results[i].N = c.n
	}
	c.meter.Applied(c.name, b, &protocol.Reply{Status: status, Config: config, Results: results}, *c.now, *c.now)
	return b
}

func (c *client) pass(d time.Duration) { *c.now = c.now.Add(d) }

func acquire(ticket int) protocol.Op {
	return protocol.Op{Verb: protocol.Acquire, Ticket: protocol.Ticket(ticket), Weight: 2}
}

func granted(ticket, lease int) protocol.Result {
	return protocol.Result{Kind: protocol.Granted, Ticket: protocol.Ticket(ticket), Lease: protocol.Seq(lease), Weight: 2}
}

func release(lease int) protocol.Op {
	return protocol.Op{Verb: protocol.Release, Lease: protocol.Seq(lease)}
}

func none(string) bool { return false }

func oneOwner(string) string { return "" }

// near reports whether a percentile is within the width of its buckets.
func near(got, want time.Duration) bool {
	return got >= want*80/100 && got <= want*125/100
}

func TestMeter_WaitAndHold(t *testing.T) {
	t.Parallel()
	c := at(t, meter.New(10, none, oneOwner), "db", 1)
	c.send(protocol.Applied, nil, acquire(1))
	c.pass(2 * time.Second)
	if o := c.meter.Open("db"); o.Waiting != 1 || !o.HeadSince.Equal(c.now.Add(-2*time.Second)) {
		t.Errorf("open %+v", o)
	}
	c.send(protocol.Applied, []protocol.Result{granted(1, 7)})
	c.pass(10 * time.Second)
	if o := c.meter.Open("db"); o.InUse != 2 || o.Waiting != 0 || !o.OldestHoldSince.Equal(c.now.Add(-10*time.Second)) {
		t.Errorf("open %+v", o)
	}
	c.send(protocol.Applied, nil, release(7))
	f := c.meter.Series("db").Figures(*c.now)
	if f.Waits != 1 || !near(f.WaitP99, 2*time.Second) || f.Holds != 1 || !near(f.HoldP50, 10*time.Second) || f.Held != 10 {
		t.Errorf("figures %+v", f)
	}
	if o := c.meter.Open("db"); o.InUse != 0 {
		t.Errorf("open %+v", o)
	}
}

// TestMeter_ResentBatchCountsOnce checks batches whose reply was lost, and results that the store
// repeats until they are acknowledged.
func TestMeter_ResentBatchCountsOnce(t *testing.T) {
	t.Parallel()
	c := at(t, meter.New(10, none, oneOwner), "db", 1)
	b := c.send(protocol.Applied, []protocol.Result{granted(1, 7)}, acquire(1))
	again := granted(1, 7)
	again.N = 1
	c.meter.Applied("db", b, &protocol.Reply{Status: protocol.Repeated, Config: config, Results: []protocol.Result{again}}, *c.now, *c.now)
	if n := c.meter.Series("db").Total(meter.Acquired); n != 1 {
		t.Errorf("%d acquired, want 1", n)
	}
	if o := c.meter.Open("db"); o.InUse != 2 || o.Waiting != 0 {
		t.Errorf("open %+v", o)
	}
}

func TestMeter_Results(t *testing.T) {
	t.Parallel()
	c := at(t, meter.New(10, none, oneOwner), "db", 1)
	c.send(protocol.Applied, []protocol.Result{{Kind: protocol.Full, Ticket: 1}}, acquire(1))
	c.send(protocol.Applied, []protocol.Result{{Kind: protocol.TimedOut, Ticket: 2}}, acquire(2))
	c.send(protocol.Applied, nil, acquire(3))
	c.send(protocol.Applied, nil, protocol.Op{Verb: protocol.Cancel, Ticket: 3})
	bounded := acquire(4)
	bounded.Wait = 1_000_000
	c.send(protocol.Applied, nil, bounded)
	c.pass(time.Second)
	c.send(protocol.Applied, nil, protocol.Op{Verb: protocol.Cancel, Ticket: 4}) // the client's timer was first
	s := c.meter.Series("db")
	for o, want := range map[meter.Result]uint64{meter.Rejected: 1, meter.TimedOut: 2, meter.Canceled: 1, meter.Acquired: 0} {
		if got := s.Total(o); got != want {
			t.Errorf("%v: %d, want %d", o, got, want)
		}
	}
	if n := s.Rejections()["full"]; n != 1 {
		t.Errorf("rejections %v", s.Rejections())
	}
}

func TestMeter_LostLeases(t *testing.T) {
	t.Parallel()
	m := meter.New(10, none, oneOwner)
	revoked, expired, deleted := at(t, m, "revoked", 1), at(t, m, "expired", 2), at(t, m, "deleted", 3)
	for _, c := range []*client{revoked, expired, deleted} {
		c.send(protocol.Applied, []protocol.Result{granted(1, 7)}, acquire(1))
		c.pass(3 * time.Second)
	}
	revoked.send(protocol.Applied, []protocol.Result{{Kind: protocol.Revoked, Lease: 7}})
	expired.send(protocol.Unknown, nil)
	m.Deleted("deleted", *deleted.now)
	for _, name := range []string{"revoked", "expired", "deleted"} {
		if s := m.Series(name); s.Lost() != 1 || s.Figures(*revoked.now).Holds != 1 {
			t.Errorf("%s: %d lost, %+v", name, s.Lost(), s.Figures(*revoked.now))
		}
	}
}

// TestMeter_AnotherOwnerEndsNothing checks a batch that guesses the number of a session.
func TestMeter_AnotherOwnerEndsNothing(t *testing.T) {
	t.Parallel()
	c := at(t, meter.New(10, none, oneOwner), "db", 1)
	c.send(protocol.Applied, []protocol.Result{granted(1, 7)}, acquire(1))
	forged := &protocol.Batch{Session: 1, Owner: protocol.Owner{Principal: "token:other"}, Seq: 9}
	c.meter.Applied("db", forged, &protocol.Reply{Status: protocol.Unknown}, *c.now, *c.now)
	if o := c.meter.Open("db"); o.InUse != 2 || c.meter.Series("db").Lost() != 0 {
		t.Errorf("open %+v", o)
	}
}

// TestMeter_Reconcile checks what a snapshot shows: a client that has disappeared has lost its
// lease, and a client of another server holds one.
func TestMeter_Reconcile(t *testing.T) {
	t.Parallel()
	c := at(t, meter.New(10, none, oneOwner), "db", 1)
	c.send(protocol.Applied, []protocol.Result{granted(1, 7)}, acquire(1))
	c.pass(20 * time.Second)
	if late := c.meter.Sweep(*c.now); len(late) != 1 || late[0] != "db" {
		t.Fatalf("overdue %v", late)
	}
	const skew = 3 * time.Hour
	since := c.now.Add(-time.Minute)
	c.meter.Reconcile("db", &protocol.Snapshot{
		Config: config, Sessions: []protocol.SessionInfo{{Session: 5}},
		Leases: []protocol.LeaseInfo{{Seq: 3, Session: 5, Weight: 4, Since: protocol.Micros(since.Add(skew).UnixMicro())}},
	}, skew, *c.now, *c.now)
	if s := c.meter.Series("db"); s.Lost() != 1 {
		t.Errorf("%d lost, want 1", s.Lost())
	}
	if o := c.meter.Open("db"); o.InUse != 4 || !o.OldestHoldSince.Equal(since) {
		t.Errorf("open %+v", o)
	}
	other := at(t, c.meter, "db", 5) // continues here, as after a restart of the server
	*other.now = c.now.Add(time.Second)
	other.send(protocol.Applied, nil, release(3))
	if f := c.meter.Series("db").Figures(*other.now); f.HoldP99 < 50*time.Second {
		t.Errorf("the hold began before this server knew the lease: %+v", f)
	}
}

// TestMeter_NoHoldIsNegative ends a lease of another server that began in the future, by the clock of
// the store.
func TestMeter_NoHoldIsNegative(t *testing.T) {
	t.Parallel()
	c := at(t, meter.New(10, none, oneOwner), "db", 1)
	c.meter.Reconcile("db", &protocol.Snapshot{
		Config: config, Sessions: []protocol.SessionInfo{{Session: 1}},
		Leases: []protocol.LeaseInfo{{Seq: 3, Session: 1, Weight: 4, Since: protocol.Micros(c.now.Add(time.Hour).UnixMicro())}},
	}, 0, *c.now, *c.now)
	c.send(protocol.Applied, nil, release(3))
	if f := c.meter.Series("db").Figures(*c.now); f.Holds != 1 || f.Held != 0 {
		t.Errorf("%d holds of %g s on average, want 1 of 0", f.Holds, f.Held)
	}
}

// TestMeter_BoundedUnderManyNames checks that 100,000 names use bounded memory and series, and
// that no undeclared name takes the place of a declared one.
func TestMeter_BoundedUnderManyNames(t *testing.T) {
	const names, limit = 100_000, 1_000
	m := meter.New(limit, func(name string) bool { return name == "declared" }, oneOwner)
	now := time.Unix(1_800_000_000, 0)
	m.Declare("declared", meter.State{}, now)
	before := heap()
	for i := range names {
		now = now.Add(time.Second) // 28 h: many series become unused
		c := &client{t: t, meter: m, name: fmt.Sprintf("tenant-%d", i), session: 1, now: &now}
		c.send(protocol.Applied, []protocol.Result{granted(1, 7)}, acquire(1))
		c.send(protocol.Applied, nil, release(7))
		if i%100 == 0 {
			m.Sweep(now.Add(time.Minute))
		}
	}
	all, replaced := m.All()
	if len(all) > limit+2 || replaced == 0 {
		t.Errorf("%d series, %d replaced", len(all), replaced)
	}
	if m.Series("declared") == nil {
		t.Error("the declared series was replaced")
	}
	var total uint64
	for _, s := range all {
		total += s.Total(meter.Acquired)
	}
	if folded := m.Folded().Total(meter.Acquired); folded > 0 && total > names {
		t.Errorf("%d counted, %d folded", total, folded)
	}
	grown := heap() - before
	t.Logf("%d names: %d series, %d replaced, %d KiB", names, len(all)-1, replaced, grown>>10)
	if grown > 32<<20 {
		t.Errorf("%d MiB", grown>>20)
	}
	runtime.KeepAlive(m)
}

// TestMeter_FoldsWhileAllAreInUse checks that names without room share one series, and that the
// series of names in use stay.
func TestMeter_FoldsWhileAllAreInUse(t *testing.T) {
	t.Parallel()
	m := meter.New(2, none, oneOwner)
	now := time.Unix(1_800_000_000, 0)
	for i := range 10 {
		c := &client{t: t, meter: m, name: fmt.Sprint(i), session: 1, now: &now}
		c.send(protocol.Applied, []protocol.Result{granted(1, 7)}, acquire(1))
	}
	if m.Series("0") == nil || m.Series("1") == nil || m.Series("2") != nil {
		t.Error("the first names have the series")
	}
	if n := m.Folded().Total(meter.Acquired); n != 8 {
		t.Errorf("%d folded, want 8", n)
	}
}

func heap() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// BenchmarkMeter_Pair measures what an acquire and its release cost in addition.
func BenchmarkMeter_Pair(b *testing.B) {
	m := meter.New(10, none, oneOwner)
	now := time.Now()
	for i := 0; b.Loop(); i++ {
		n := uint64(2*i + 1)
		take := &protocol.Batch{Session: 1, Seq: n, Ops: []protocol.Op{acquire(i)}}
		got := granted(i, i)
		got.N = n
		m.Applied("db", take, &protocol.Reply{Status: protocol.Applied, Config: config, Results: []protocol.Result{got}}, now, now)
		m.Applied("db", &protocol.Batch{Session: 1, Seq: n + 1, Ops: []protocol.Op{release(i)}}, &protocol.Reply{Status: protocol.Applied, Config: config}, now, now)
	}
}
