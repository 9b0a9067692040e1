package fleet

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// exact is the strategy of [ModeExact]: each call is a request to the store, and each
// permit is a lease.
type exact struct {
	*session
	leases   map[protocol.Seq]*grant // of the current session
	acquired atomic.Int64
}

func newExact(s *session) *exact { return &exact{session: s, leases: map[protocol.Seq]*grant{}} }

// A grant is a lease at the store. Each permit has its own grant with its own fence. The
// parts of a rate's permit, or of a region's block, share one.
type grant struct {
	of    *exact
	peer  *protocol.Peer // its session; session.mu guards this field and those below
	fence protocol.Fence
	since time.Time
	lost  chan struct{}
	held  int64           // weight that is not released
	at    protocol.Micros // of a rate: when it was received
	cost  int64           // of a rate: what it is settled at
	why   string          // reason of the loss; "" while the lease is held
	block bool            // a block of a region, whose fence is not used

	// A split that got no reply in time leaves the permit whole. The store may still
	// split the lease later: parts are the leases that were split off, and are released
	// with it.
	splitPending bool
	parts        []protocol.Seq
}

// A lease is the part of a grant that belongs to one permit.
type lease struct {
	grant  *grant
	weight int64
	slots  []int64 // numbers of its permits, if the semaphore is numbered; fixed
	ended  bool    // released; guarded by session.mu
	err    error   // result of Err at the release
	quiet  bool    // the caller of Release sends the batch; guarded by session.mu

	settled bool // of a rate: Settle was called, or the permit was split; guarded by session.mu
}

// acquire requests a lease and waits for it. A weight of 0 needs no lease.
func (s *exact) acquire(ctx context.Context, c *call) (sema.Permit, error) {
	if deadline, ok := ctx.Deadline(); ok {
		c.req.Wait = max(1, protocol.Micros(time.Until(deadline).Microseconds()))
	}
	c.req.Details = s.details()
	if c.req.Try && c.req.Weight > 0 {
		if err := s.rejectPaused(c); err != nil {
			return sema.Permit{}, err
		}
	}
	if s.monitor != nil {
		if err := s.expectQueue(c); err != nil {
			return sema.Permit{}, err
		}
	}
	w := s.newWaiter(c, &c.req)
	w.inline = true
	if err := s.submit(c.op, w); err != nil || c.req.Weight == 0 {
		return sema.Permit{}, err
	}
	if w.inline {
		s.exchangeInline(c.limit(ctx, s.settings))
	}
	r, err := s.await(ctx, c, w)
	if err != nil {
		return sema.Permit{}, err
	}
	s.acquired.Add(1)
	if r.lease.grant.block { // a region's block, which may be smaller than requested
		return sema.NewPermit(r.lease.weight, r.lease), nil
	}
	return c.wait.Leased(r.lease), nil
}

// pendingLocked implements [strategy]: all requests have waiters.
func (s *exact) pendingLocked() protocol.Op { return protocol.Op{} }

// resolveLocked implements [strategy].
func (s *exact) resolveLocked(w *waiter, f protocol.Result) {
	switch {
	case f.Kind == protocol.Revoked:
		if g := s.leases[f.Lease]; g != nil {
			delete(s.leases, f.Lease)
			s.loseGrantLocked(g, f.Note)
		}
	case w == nil:
	case w.of != nil:
		s.attachLocked(w.of, f)
	default:
		s.counts.Grants++
		w.ended <- result{lease: s.newLeaseLocked(f, w.op.Pooled)}
	}
}

// newLeaseLocked returns the lease of a grant. Permits of a rate are spent, and are never
// lost.
func (s *exact) newLeaseLocked(f protocol.Result, block bool) *lease {
	g := &grant{of: s, block: block, peer: s.peer, fence: f.Fence, since: time.Now(), held: f.Weight, lost: make(chan struct{})}
	if s.peer.Config().Kind == protocol.Concurrency {
		s.leases[f.Lease] = g
	} else {
		g.at, g.cost = s.client.clock(), f.Weight
		s.spendings.spend(g.at, s.windowLocked(), f.Weight)
		s.latest = g
	}
	return &lease{grant: g, weight: f.Weight, slots: numbersOf(f)}
}

// numbersOf returns the numbers of a grant, nil if a store without numbers replied.
func numbersOf(f protocol.Result) []int64 {
	if numbers := slotsOf(f.Slots); int64(len(numbers)) == f.Weight {
		return numbers
	}
	return nil
}

// repliedLocked implements [strategy].
func (s *exact) repliedLocked(_ protocol.Reply, heartbeat bool) {
	if heartbeat && s.monitor != nil && len(s.leases) > 0 {
		s.report(sema.Event{Kind: sema.EventRenewed, Weight: s.heldLocked()})
	}
}

// reconfiguredLocked implements [strategy].
func (s *exact) reconfiguredLocked() {}

// tendLocked implements [strategy].
func (s *exact) tendLocked(protocol.Micros) {}

// dueLocked implements [strategy].
func (s *exact) dueLocked(protocol.Micros) protocol.Micros { return 0 }

// rejectLocked implements [strategy]: all callers wait at the store.
func (s *exact) rejectLocked(error) {}

// loseLocked implements [strategy].
func (s *exact) loseLocked(why string) {
	for seq, g := range s.leases {
		delete(s.leases, seq)
		s.loseGrantLocked(g, why)
	}
	s.endSplitsLocked()
}

// heldLocked implements [strategy].
func (s *exact) heldLocked() (sum int64) {
	for _, g := range s.leases {
		sum += g.held
	}
	return sum
}

// usageLocked implements [strategy].
func (s *exact) usageLocked() usage { return usage{acquired: s.acquired.Load()} }

// loseGrantLocked marks a lease as lost, and reports it.
func (s *exact) loseGrantLocked(g *grant, why string) {
	g.why = why
	close(g.lost)
	s.counts.countLost(why)
	s.report(sema.Event{Kind: sema.EventLost, Weight: g.held, Hold: time.Since(g.since), Err: s.fault("hold", g.held, sema.ErrLost, why)})
}

// Name returns the name of the semaphore.
func (l *lease) Name() string { return l.grant.of.settings.label }

// Slots implements [sema.Permit.Slots].
func (l *lease) Slots() []int64 { return slices.Clone(l.slots) }

// Release implements [sema.Lease]. The next batch sends it to the store.
func (l *lease) Release() { l.release() }

// abandon returns a grant that no caller has received: as if it had not been granted.
func (l *lease) abandon() {
	l.settle(0)
	l.release()
}

func (l *lease) release() {
	g, s := l.grant, l.grant.of
	s.mu.Lock()
	defer s.mu.Unlock()
	l.err = l.failureLocked()
	l.ended = true
	g.held -= l.weight
	if s.leases[g.fence.Seq] != g {
		return // lost, or of a rate: nothing to release
	}
	s.inUse.Add(-l.weight) // an estimate until the next reply
	request := func(lease protocol.Seq, weight int64) {
		s.counts.Releases++
		s.peer.Request(protocol.Op{Verb: protocol.Release, Lease: lease, Weight: weight})
	}
	if g.held > 0 {
		request(g.fence.Seq, l.weight)
	} else {
		delete(s.leases, g.fence.Seq)
		request(g.fence.Seq, 0)
		for _, part := range g.parts {
			request(part, 0)
		}
	}
	if !l.quiet {
		s.startDriverLocked()
	}
}

// Lost implements [sema.Permit.Lost].
func (l *lease) Lost() <-chan struct{} { return l.grant.lost }

// Err implements [sema.Permit.Err]. It compares the clock with the session's deadline, so
// that it does not depend on the driver.
func (l *lease) Err() error {
	l.grant.of.mu.Lock()
	defer l.grant.of.mu.Unlock()
	if l.ended {
		return l.err
	}
	return l.failureLocked()
}

// failureLocked returns the error of a lost lease, nil while it is held.
func (l *lease) failureLocked() error {
	g, s := l.grant, l.grant.of
	why := g.why
	if why == "" && g.peer.Config().Kind == protocol.Concurrency && g.peer.Ended(s.client.clock()) {
		why = reasonNotRenewed
	}
	if why == "" {
		return nil
	}
	return s.fault("hold", l.weight, sema.ErrLost, why)
}

const reasonNotRenewed = "the session was not renewed in time"

func (g *grant) describe() Lease {
	s := g.of
	s.mu.Lock()
	defer s.mu.Unlock()
	l := Lease{s.name, g.fence.Seq, g.fence, s.leftLocked(g.peer, g.why)}
	if g.peer.Config().Kind == protocol.Rate {
		l.Fence = protocol.Fence{}
	}
	return l
}

// leftLocked returns the time for which the leases of a session are held at least.
func (s *session) leftLocked(peer *protocol.Peer, why string) time.Duration {
	now := s.client.clock()
	switch {
	case peer.Config().Kind == protocol.Rate:
		return math.MaxInt64 // permits of a rate are never lost
	case why != "" || peer.Ended(now):
		return 0
	}
	return micros(peer.Deadline() - now)
}
