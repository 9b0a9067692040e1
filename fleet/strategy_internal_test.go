package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A bench is a session without a store: requests stay in the peer, and the test supplies the
// results.
type bench struct {
	*session
	now protocol.Micros
}

const benchTTL = 15_000_000

func newBench(t *testing.T, opts ...Option) *bench {
	t.Helper()
	set, err := newSettings("db", 10, opts)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{now: 1_000_000_000}
	client := &Client{clock: func() protocol.Micros { return b.now }}
	client.workers.begin()
	t.Cleanup(client.workers.end)
	b.session = newSession(client, "db", set)
	b.driver.running = true // the test is the driver
	b.strategy = &idle{}
	b.connect()
	return b
}

// TestSession_SharesDetails checks that the acquires of a call site do not allocate details of
// their own, and that other call sites and sessions have others.
func TestSession_SharesDetails(t *testing.T) {
	t.Parallel()
	s := newBench(t, Labels(map[string]string{"job": "a"})).session
	var here []*protocol.Details
	for range 2 {
		here = append(here, s.details())
	}
	there := s.details()
	if here[0] != here[1] || here[0].Site == "" || here[0].Labels != "job=a" {
		t.Errorf("details %+v, %+v", here[0], here[1])
	}
	if there.Site == here[0].Site || there.Labels != "job=a" {
		t.Errorf("details %+v, want another site than %+v", there, here[0])
	}
}

// TestSession_CallerReplacesADriverThatHasNotBegun checks that a caller becomes the driver in
// place of a worker that has not begun, and that the worker then does not drive as well.
func TestSession_CallerReplacesADriverThatHasNotBegun(t *testing.T) {
	t.Parallel()
	s := newBench(t).session
	s.driver.running, s.driver.starting = true, true // a worker was asked to run
	become := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.becomeDriverLocked()
	}
	if !become() {
		t.Fatal("the caller did not replace the worker")
	}
	defer s.client.group.Done()
	s.beginDriver() // would stop the driver: nothing is due
	if !s.driver.running {
		t.Error("the worker is a second driver")
	}
	if become() {
		t.Error("a caller replaced a driver that has begun")
	}
}

// connect opens a session.
func (b *bench) connect() {
	c := protocol.Config{Capacity: 10, TTL: benchTTL}
	b.peer = protocol.NewPeer(b.now, 1, c, protocol.Opener{})
	b.last.Config = c
	b.capacity.Store(c.Capacity)
}

// sent returns the requests since the last call, as text.
func (b *bench) sent() (ops []string) {
	batch := b.peer.Send(b.now, maxOps)
	for _, op := range batch.Ops {
		ops = append(ops, fmt.Sprintf("%d: ticket %d, lease %d, weight %d", op.Verb, op.Ticket, op.Lease, op.Weight))
	}
	b.peer.Receive(b.now, batch.Seq, protocol.Reply{Config: b.last.Config})
	return ops
}

func granted(ticket protocol.Ticket, seq protocol.Seq, weight int64) protocol.Result {
	return protocol.Result{Kind: protocol.Granted, Ticket: ticket, Lease: seq, Weight: weight, Fence: protocol.Fence{Seq: seq}}
}

func wantOps(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// An idle strategy does nothing, and records its calls.
type idle struct {
	calls []string
}

func (i *idle) note(text string, args ...any) { i.calls = append(i.calls, fmt.Sprintf(text, args...)) }

func (i *idle) acquire(context.Context, *call) (sema.Permit, error) { return sema.Permit{}, nil }
func (i *idle) pendingLocked() protocol.Op                          { return protocol.Op{} }
func (i *idle) resolveLocked(w *waiter, f protocol.Result)          { i.note("resolve %t %d", w != nil, f.Kind) }
func (i *idle) repliedLocked(_ protocol.Reply, heartbeat bool)      { i.note("replied %t", heartbeat) }
func (i *idle) reconfiguredLocked()                                 { i.note("reconfigured") }
func (i *idle) tendLocked(protocol.Micros)                          {}
func (i *idle) dueLocked(protocol.Micros) protocol.Micros           { return 0 }
func (i *idle) rejectLocked(why error)                              { i.note("reject %v", why) }
func (i *idle) loseLocked(why string)                               { i.note("lose %s", why) }
func (i *idle) heldLocked() int64                                   { return 0 }
func (i *idle) usageLocked() usage                                  { return usage{} }

func TestExact_WithoutAStore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newExact(b.session)
	b.strategy = s
	var permits []sema.Permit
	for i := range protocol.Seq(3) {
		w := b.newWaiter(&call{op: "acquire"}, &protocol.Op{Verb: protocol.Acquire, Weight: 2})
		if err := b.submit("acquire", w); err != nil {
			t.Fatal(err)
		}
		b.session.resolveLocked(granted(w.op.Ticket, i+1, 2))
		r := <-w.ended
		permits = append(permits, sema.NewPermit(r.lease.weight, r.lease))
	}
	b.sent()
	if s.heldLocked() != 6 || len(b.waiters) != 0 {
		t.Errorf("%d held, %d waiters", s.heldLocked(), len(b.waiters))
	}
	permits[0].Release()
	permits[0].Release()
	wantOps(t, b.sent(), "3: ticket 0, lease 1, weight 0")
	b.session.resolveLocked(protocol.Result{Kind: protocol.Revoked, Lease: 2, Note: "by ops"})
	<-permits[1].Lost()
	permits[1].Release()
	wantOps(t, b.sent())
	b.now += benchTTL // without a heartbeat
	if err := permits[2].Err(); !errors.Is(err, sema.ErrLost) {
		t.Errorf("%v", err)
	}
	b.loseIfEndedLocked()
	<-permits[2].Lost()
	if s.heldLocked() != 0 || b.peer != nil {
		t.Errorf("%d held", s.heldLocked())
	}
}

func TestPooled_WithoutAStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testPooledAlone)
}

func testPooledAlone(t *testing.T) {
	b := newBench(t, ModePooled, Quantum(50*time.Millisecond))
	var front atomic.Pointer[generation]
	s := newPooled(b.session, &front)
	got := make(chan sema.Permit)
	go func() {
		p, err := s.acquire(context.Background(), &call{op: "acquire", req: protocol.Op{Weight: 3}, start: time.Now()})
		if err != nil {
			t.Error(err)
		}
		got <- p
	}()
	synctest.Wait()
	s.mu.Lock()
	request := s.pendingLocked()
	if front.Load() != nil || request.Least != 3 {
		t.Errorf("the front is published although a caller waits: %v, %+v", front.Load() != nil, request)
	}
	b.sent()
	b.session.resolveLocked(granted(request.Ticket, 7, 8))
	s.mu.Unlock()
	p := <-got
	s.mu.Lock()
	if u := s.usageLocked(); s.heldLocked() != 3 || u != (usage{blocks: 8, ready: 5, acquired: 1}) || s.pendingLocked().Ticket != 0 || front.Load() == nil {
		t.Errorf("%d held, %+v", s.heldLocked(), u)
	}
	// Others wait: half of the free permits return immediately, the rest after a quantum as
	// they are released.
	s.repliedLocked(protocol.Reply{Recall: true, Config: b.last.Config}, true)
	wantOps(t, b.sent(), "3: ticket 0, lease 7, weight 3")
	if due := s.dueLocked(b.now); due != b.now+50_000 {
		t.Errorf("due in %d µs", due-b.now)
	}
	b.now += 50_000
	s.tendLocked(b.now)
	wantOps(t, b.sent(), "3: ticket 0, lease 7, weight 2")
	if s.front.held != 0 || len(s.retired) != 1 {
		t.Errorf("the front has %d permits, %d generations are retired", s.front.held, len(s.retired))
	}
	s.mu.Unlock()
	p.Release()
	synctest.Wait() // for a worker
	s.mu.Lock()
	defer s.mu.Unlock()
	wantOps(t, b.sent(), "3: ticket 0, lease 7, weight 0")
	if u := s.usageLocked(); u != (usage{acquired: 1}) {
		t.Errorf("%+v", u)
	}
}

func TestPooled_LosesAllWithItsSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, ModePooled)
	var front atomic.Pointer[generation]
	s := newPooled(b.session, &front)
	s.addBlockLocked(granted(1, 7, 4))
	p, err := s.acquire(t.Context(), &call{op: "acquire", req: protocol.Op{Weight: 2}, start: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	b.session.loseLocked(reasonNotRenewed)
	s.mu.Unlock()
	<-p.Lost()
	if err := p.Err(); !errors.Is(err, sema.ErrLost) {
		t.Errorf("%v", err)
	}
	if u := s.usageLocked(); u.blocks != 0 || u.acquired != 1 {
		t.Errorf("%+v", u)
	}
}

func TestFailOpen_WithoutAStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testFailOpenAlone)
}

func testFailOpenAlone(t *testing.T) {
	b := newBench(t, FailOpen(2), FailOpenAfter(3*time.Second), RecoverAfter(2*time.Second))
	f, strategy := b.failOpen, b.strategy.(*idle)
	b.driver.lastErr = errNoReply
	began := b.now
	for range 2 {
		if left := f.failedLocked(began, b.now); f.applies() || left != micros(began+3_000_000-b.now) {
			t.Fatalf("applies %t, check in %v", f.applies(), left)
		}
		b.now += 1_500_000
	}
	f.failedLocked(began, b.now)
	if !f.applies() || !slices.Equal(strategy.calls, []string{"reconfigured", "reject failed open"}) {
		t.Fatalf("applies %t, %q", f.applies(), strategy.calls)
	}
	p, err := f.acquire(t.Context(), &call{op: "acquire", req: protocol.Op{Weight: 2}, start: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error)
	go func() {
		_, err := f.acquire(context.Background(), &call{op: "acquire", req: protocol.Op{Weight: 1}, start: time.Now()})
		waits <- err
	}()
	synctest.Wait()
	if n := f.stats().Waiters; n != 1 {
		t.Errorf("%d waiters", n)
	}
	f.repliedLocked(b.now)
	if !f.applies() || f.probeDueLocked() != b.now+500_000 {
		t.Errorf("applies %t, to be probed in %d µs", f.applies(), f.probeDueLocked()-b.now)
	}
	b.now += 1_000_000
	f.failedLocked(b.now, b.now) // restarts the recovery
	b.now += 1_500_000
	f.repliedLocked(b.now)
	if !f.applies() {
		t.Error("recovered although the store failed meanwhile")
	}
	b.now += 2_000_000
	f.repliedLocked(b.now)
	if err := <-waits; f.applies() || err != errRecovered {
		t.Errorf("applies %t, the waiter got %v", f.applies(), err)
	}
	p.Release()
	if f.stats().InUse != 0 {
		t.Errorf("%+v", f.stats())
	}
}

func TestSession_WithoutAStore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	strategy := b.strategy.(*idle)
	first, second := b.newWaiter(new(call), &protocol.Op{Verb: protocol.Acquire, Weight: 1}), b.newWaiter(new(call), &protocol.Op{Verb: protocol.Acquire, Weight: 2})
	for _, w := range []*waiter{first, second} {
		if err := b.submit("acquire", w); err != nil {
			t.Fatal(err)
		}
	}
	wantOps(t, b.sent(), "1: ticket 1, lease 0, weight 1", "1: ticket 2, lease 0, weight 2")
	b.resolveLocked(protocol.Result{Kind: protocol.QueueFull, Ticket: 1})
	if r := <-first.ended; !errors.Is(r.err, sema.ErrQueueFull) {
		t.Errorf("%v", r.err)
	}
	b.resolveLocked(granted(2, 7, 2))
	b.resolveLocked(protocol.Result{Kind: protocol.Revoked, Lease: 7})
	b.withdraw(&waiter{op: &protocol.Op{Ticket: 9}, ended: ended(result{})}) // decided already
	b.noteConfigLocked(protocol.Config{Capacity: 4, TTL: benchTTL})
	if b.capacity.Load() != 4 || !b.tooLargeLocked(5) || b.tooLargeLocked(4) {
		t.Errorf("capacity %d", b.capacity.Load())
	}
	b.rejectAllLocked(sema.ErrClosed)
	b.loseLocked(reasonNotRenewed)
	want := []string{"resolve true 1", "resolve false 7", "reconfigured", "reject sema: closed", "lose " + reasonNotRenewed}
	if !slices.Equal(strategy.calls, want) {
		t.Errorf("%q, want %q", strategy.calls, want)
	}
	if b.counts.SessionsLost != 1 || b.peer != nil || b.waitsLocked() {
		t.Errorf("%+v", b.counts)
	}
}

// ended returns a channel with a result.
func ended(r result) chan result {
	c := make(chan result, 1)
	c <- r
	return c
}

func TestOutbox_OrdersAndDropsEvents(t *testing.T) {
	t.Parallel()
	var o outbox
	release, reported := make(chan struct{}), make(chan sema.Event, 3*maxUnreported)
	m := sema.NewMonitor(sema.New(1), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		<-release
		reported <- e
		if e.Weight == 0 {
			panic("observer")
		}
	})))
	for i := range int64(2 * maxUnreported) {
		o.post(m, sema.Event{Kind: sema.EventLost, Weight: i})
		o.post(m, sema.Event{Kind: sema.EventRenewed, Weight: -1})
	}
	close(release)
	last := sema.Event{}
	for n := 0; last.Weight != 2*maxUnreported-1; n++ {
		if e := <-reported; e.Kind == sema.EventLost {
			if e.Weight < last.Weight {
				t.Fatalf("%d after %d", e.Weight, last.Weight)
			}
			last = e
		}
		if n > maxUnreported+1 {
			t.Fatalf("%d events were kept", n)
		}
	}
	if o.panicked() > 1 || !o.isNew("a") || o.isNew("a") || !o.isNew("b") {
		t.Errorf("%d panics", o.panicked())
	}
}
