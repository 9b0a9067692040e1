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

// A bench is a session without a store: its requests stay in the peer, and the test
// plays the store.
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
	b.driver.works = true // the test does its work
	b.strategy = &idle{}
	b.connect()
	return b
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
	b.peer.Hear(b.now, batch.Seq, protocol.Reply{Config: b.last.Config})
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

// idle is a strategy that does nothing, and remembers what it was asked.
type idle struct {
	calls []string
}

func (i *idle) note(text string, args ...any) { i.calls = append(i.calls, fmt.Sprintf(text, args...)) }

func (i *idle) acquire(context.Context, *call) (sema.Permit, error) { return sema.Permit{}, nil }
func (i *idle) pending() protocol.Op                                { return protocol.Op{} }
func (i *idle) resolve(w *waiter, f protocol.Result)                { i.note("resolve %t %d", w != nil, f.Kind) }
func (i *idle) replied(_ protocol.Reply, heartbeat bool)            { i.note("replied %t", heartbeat) }
func (i *idle) reconfigured()                                       { i.note("reconfigured") }
func (i *idle) tend(protocol.Micros)                                {}
func (i *idle) due(protocol.Micros) protocol.Micros                 { return 0 }
func (i *idle) reject(why error)                                    { i.note("reject %v", why) }
func (i *idle) lose(why string)                                     { i.note("lose %s", why) }
func (i *idle) held() int64                                         { return 0 }
func (i *idle) usage() usage                                        { return usage{} }

func TestExact_Alone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newExact(b.session)
	b.strategy = s
	var permits []sema.Permit
	for i := range protocol.Seq(3) {
		w := b.newWaiter(&call{op: "acquire"}, protocol.Op{Verb: protocol.Acquire, Weight: 2})
		if err := b.ask("acquire", w); err != nil {
			t.Fatal(err)
		}
		b.session.resolve(granted(w.op.Ticket, i+1, 2))
		r := <-w.ended
		permits = append(permits, sema.NewPermit(r.lease.weight, r.lease))
	}
	b.sent()
	if s.held() != 6 || len(b.waiters) != 0 {
		t.Errorf("%d held, %d waiters", s.held(), len(b.waiters))
	}
	permits[0].Release()
	permits[0].Release()
	wantOps(t, b.sent(), "3: ticket 0, lease 1, weight 0")
	b.session.resolve(protocol.Result{Kind: protocol.Revoked, Lease: 2, Note: "by ops"})
	<-permits[1].Lost()
	permits[1].Release()
	wantOps(t, b.sent())
	b.now += benchTTL // without a heartbeat
	if err := permits[2].Err(); !errors.Is(err, sema.ErrLost) {
		t.Errorf("%v", err)
	}
	b.loseIfEnded()
	<-permits[2].Lost()
	if s.held() != 0 || b.peer != nil {
		t.Errorf("%d held", s.held())
	}
}

func TestPooled_Alone(t *testing.T) {
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
	asked := s.pending()
	if front.Load() != nil || asked.Least != 3 {
		t.Errorf("a caller waits, and others may pass: %v, %+v", front.Load() != nil, asked)
	}
	b.sent()
	b.session.resolve(granted(asked.Ticket, 7, 8))
	s.mu.Unlock()
	p := <-got
	s.mu.Lock()
	if u := s.usage(); s.held() != 3 || u != (usage{blocks: 8, ready: 5, acquired: 1}) || s.pending().Ticket != 0 || front.Load() == nil {
		t.Errorf("%d held, %+v", s.held(), u)
	}
	// Others wait: half of what is free returns at once, the rest after a quantum as it
	// is released.
	s.replied(protocol.Reply{Recall: true, Config: b.last.Config}, true)
	wantOps(t, b.sent(), "3: ticket 0, lease 7, weight 3")
	if due := s.due(b.now); due != b.now+50_000 {
		t.Errorf("due in %d µs", due-b.now)
	}
	b.now += 50_000
	s.tend(b.now)
	wantOps(t, b.sent(), "3: ticket 0, lease 7, weight 2")
	if s.front.held != 0 || len(s.retired) != 1 {
		t.Errorf("the front has %d, %d are retired", s.front.held, len(s.retired))
	}
	s.mu.Unlock()
	p.Release()
	synctest.Wait() // for a worker
	s.mu.Lock()
	defer s.mu.Unlock()
	wantOps(t, b.sent(), "3: ticket 0, lease 7, weight 0")
	if u := s.usage(); u != (usage{acquired: 1}) {
		t.Errorf("%+v", u)
	}
}

func TestPooled_LosesAllWithItsSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, ModePooled)
	var front atomic.Pointer[generation]
	s := newPooled(b.session, &front)
	s.addBlock(granted(1, 7, 4))
	p, err := s.acquire(t.Context(), &call{op: "acquire", req: protocol.Op{Weight: 2}, start: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	b.session.lose(unrenewed)
	s.mu.Unlock()
	<-p.Lost()
	if err := p.Err(); !errors.Is(err, sema.ErrLost) {
		t.Errorf("%v", err)
	}
	if u := s.usage(); u.blocks != 0 || u.acquired != 1 {
		t.Errorf("%+v", u)
	}
}

func TestFailOpen_Alone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testFailOpenAlone)
}

func testFailOpenAlone(t *testing.T) {
	b := newBench(t, FailOpen(2), FailOpenAfter(3*time.Second), RecoverAfter(2*time.Second))
	f, strategy := b.failOpen, b.strategy.(*idle)
	b.driver.trouble = errSilent
	began := b.now
	for range 2 {
		if left := f.failed(began, b.now); f.applies() || left != micros(began+3_000_000-b.now) {
			t.Fatalf("applies %t, check in %v", f.applies(), left)
		}
		b.now += 1_500_000
	}
	f.failed(began, b.now)
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
	f.answered(b.now)
	if !f.applies() || f.due() != b.now+500_000 {
		t.Errorf("applies %t, to be probed in %d µs", f.applies(), f.due()-b.now)
	}
	b.now += 1_000_000
	f.failed(b.now, b.now) // which begins the recovery anew
	b.now += 1_500_000
	f.answered(b.now)
	if !f.applies() {
		t.Error("it recovered though the store failed meanwhile")
	}
	b.now += 2_000_000
	f.answered(b.now)
	if err := <-waits; f.applies() || err != errRecovered {
		t.Errorf("applies %t, the waiter got %v", f.applies(), err)
	}
	p.Release()
	if f.stats().InUse != 0 {
		t.Errorf("%+v", f.stats())
	}
}

func TestSession_Alone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	strategy := b.strategy.(*idle)
	first, second := b.newWaiter(new(call), protocol.Op{Verb: protocol.Acquire, Weight: 1}), b.newWaiter(new(call), protocol.Op{Verb: protocol.Acquire, Weight: 2})
	for _, w := range []*waiter{first, second} {
		if err := b.ask("acquire", w); err != nil {
			t.Fatal(err)
		}
	}
	wantOps(t, b.sent(), "1: ticket 1, lease 0, weight 1", "1: ticket 2, lease 0, weight 2")
	b.resolve(protocol.Result{Kind: protocol.QueueFull, Ticket: 1})
	if r := <-first.ended; !errors.Is(r.err, sema.ErrQueueFull) {
		t.Errorf("%v", r.err)
	}
	b.resolve(granted(2, 7, 2))
	b.resolve(protocol.Result{Kind: protocol.Revoked, Lease: 7})
	b.withdraw(&waiter{op: protocol.Op{Ticket: 9}, ended: ended(result{})}) // decided already
	b.noteConfig(protocol.Config{Capacity: 4, TTL: benchTTL})
	if b.capacity.Load() != 4 || !b.tooLarge(5) || b.tooLarge(4) {
		t.Errorf("capacity %d", b.capacity.Load())
	}
	b.rejectAll(sema.ErrClosed)
	b.lose(unrenewed)
	want := []string{"resolve true 1", "resolve false 7", "reconfigured", "reject sema: closed", "lose " + unrenewed}
	if !slices.Equal(strategy.calls, want) {
		t.Errorf("%q, want %q", strategy.calls, want)
	}
	if b.counts.SessionsLost != 1 || b.peer != nil || b.waits() {
		t.Errorf("%+v", b.counts)
	}
}

// ended returns a channel with a result.
func ended(r result) chan result {
	c := make(chan result, 1)
	c <- r
	return c
}

func TestOutbox_Alone(t *testing.T) {
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
	if o.panicked() > 1 || !o.first("a") || o.first("a") || !o.first("b") {
		t.Errorf("%d panics", o.panicked())
	}
}
