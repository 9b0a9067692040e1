package fleet

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// exact is the strategy of [ModeExact]: each call is a request to the store, and each
// permit a lease.
type exact struct {
	*session
	leases   map[protocol.Seq]*grant // of the session
	acquired atomic.Int64
}

func newExact(s *session) *exact { return &exact{session: s, leases: map[protocol.Seq]*grant{}} }

// A grant is a lease at the store. Each permit has one of its own, with a fence of
// its own; the parts of a rate's permit and of a region's block share it.
type grant struct {
	of    *exact
	peer  *protocol.Peer // the session it belongs to; guarded by session.mu, like what follows
	fence protocol.Fence
	since time.Time
	lost  chan struct{}
	held  int64  // how much of it is not released
	why   string // it was lost
	block bool   // of a region, which shows no fence of it

	// A split whose caller has given up leaves the permit whole. The store may have
	// split the lease all the same: parts are what came off it later, and are
	// released with it.
	splits bool
	parts  []protocol.Seq
}

// A lease is what one permit has of a grant.
type lease struct {
	grant  *grant
	weight int64
	ended  bool  // released; guarded by session.mu
	err    error // that Err had when it was
}

// acquire asks the store and waits. There is no lease for a weight of 0.
func (s *exact) acquire(ctx context.Context, c *call) (sema.Permit, error) {
	if deadline, ok := ctx.Deadline(); ok {
		c.req.Wait = max(1, protocol.Micros(time.Until(deadline).Microseconds()))
	}
	c.req.Details = s.details()
	if err := s.expectQueue(c); err != nil {
		return sema.Permit{}, err
	}
	w := s.newWaiter(c, c.req)
	// A caller whose context cannot be cancelled, and that may wait for longer than a
	// reply takes, may send the batch itself.
	w.carries = ctx.Done() == nil && (!c.req.Try || s.settings.tryTimeout > replyTimeout) && (s.settings.maxWait == 0 || s.settings.maxWait > replyTimeout) && s.settings.unavailableAfter > replyTimeout
	if err := s.ask(c.op, w); err != nil || c.req.Weight == 0 {
		return sema.Permit{}, err
	}
	if w.carries {
		s.carry()
	}
	r, err := s.await(ctx, c, w)
	if err != nil {
		return sema.Permit{}, err
	}
	s.acquired.Add(1)
	if r.lease.grant.block { // of a region, which may be less than it asked for
		return sema.NewPermit(r.lease.weight, r.lease), nil
	}
	return c.wait.Leased(r.lease), nil
}

// pending implements [strategy]: all requests have waiters.
func (s *exact) pending() protocol.Op { return protocol.Op{} }

// resolve implements [strategy].
func (s *exact) resolve(w *waiter, f protocol.Result) {
	switch {
	case f.Kind == protocol.Revoked:
		if g := s.leases[f.Lease]; g != nil {
			delete(s.leases, f.Lease)
			s.loseGrant(g, f.Note)
		}
	case w == nil:
	case w.of != nil:
		s.attach(w.of, f)
	default:
		s.counts.Grants++
		w.ended <- result{lease: s.lend(f, w.op.Pooled)}
	}
}

// lend returns what a caller is given. What is of a rate is spent, and never lost. The
// mutex is held.
func (s *exact) lend(f protocol.Result, block bool) *lease {
	g := &grant{of: s, block: block, peer: s.peer, fence: f.Fence, since: time.Now(), held: f.Weight, lost: make(chan struct{})}
	if s.peer.Config().Kind == protocol.Concurrency {
		s.leases[f.Lease] = g
	}
	return &lease{grant: g, weight: f.Weight}
}

// replied implements [strategy].
func (s *exact) replied(_ protocol.Reply, heartbeat bool) {
	if heartbeat && s.monitor != nil && len(s.leases) > 0 {
		s.report(sema.Event{Kind: sema.EventRenewed, Weight: s.held()})
	}
}

// reconfigured implements [strategy].
func (s *exact) reconfigured() {}

// tend implements [strategy].
func (s *exact) tend(protocol.Micros) {}

// due implements [strategy].
func (s *exact) due(protocol.Micros) protocol.Micros { return 0 }

// reject implements [strategy]: all callers wait at the store.
func (s *exact) reject(error) {}

// lose implements [strategy].
func (s *exact) lose(why string) {
	for seq, g := range s.leases {
		delete(s.leases, seq)
		s.loseGrant(g, why)
	}
	s.endSplits()
}

// held implements [strategy].
func (s *exact) held() (sum int64) {
	for _, g := range s.leases {
		sum += g.held
	}
	return sum
}

// usage implements [strategy].
func (s *exact) usage() usage { return usage{acquired: s.acquired.Load()} }

// loseGrant notes that a lease is lost. The mutex is held.
func (s *exact) loseGrant(g *grant, why string) {
	g.why = why
	close(g.lost)
	s.report(sema.Event{Kind: sema.EventLost, Weight: g.held, Hold: time.Since(g.since), Err: s.fault("hold", g.held, sema.ErrLost, why)})
}

// Name returns the name of the semaphore.
func (l *lease) Name() string { return l.grant.of.settings.label }

// Release implements [sema.Lease]. It is sent to the store with the next batch.
func (l *lease) Release() { l.giveBack() }

func (l *lease) giveBack() {
	g, s := l.grant, l.grant.of
	s.mu.Lock()
	defer s.mu.Unlock()
	l.err = l.failure()
	l.ended = true
	g.held -= l.weight
	if s.leases[g.fence.Seq] != g {
		return // lost, or of a rate: there is nothing to release
	}
	s.inUse.Add(-l.weight) // until the next reply
	if g.held > 0 {
		s.release(protocol.Op{Verb: protocol.Release, Lease: g.fence.Seq, Weight: l.weight})
		return
	}
	delete(s.leases, g.fence.Seq)
	s.release(protocol.Op{Verb: protocol.Release, Lease: g.fence.Seq})
	for _, part := range g.parts {
		s.release(protocol.Op{Verb: protocol.Release, Lease: part})
	}
}

// Lost implements [sema.Permit.Lost].
func (l *lease) Lost() <-chan struct{} { return l.grant.lost }

// Err implements [sema.Permit.Err]: the clock decides, whether or not the driver has
// noticed.
func (l *lease) Err() error {
	l.grant.of.mu.Lock()
	defer l.grant.of.mu.Unlock()
	if l.ended {
		return l.err
	}
	return l.failure()
}

// failure returns why the lease is not held any more. The mutex is held.
func (l *lease) failure() error {
	g, s := l.grant, l.grant.of
	why := g.why
	if why == "" && g.peer.Config().Kind == protocol.Concurrency && g.peer.Ended(s.client.clock()) {
		why = unrenewed
	}
	if why == "" {
		return nil
	}
	return s.fault("hold", l.weight, sema.ErrLost, why)
}

const unrenewed = "it could not be renewed in time"

func (g *grant) describe() Lease {
	s := g.of
	s.mu.Lock()
	defer s.mu.Unlock()
	l := Lease{s.name, g.fence.Seq, g.fence, s.left(g.peer, g.why)}
	if g.peer.Config().Kind == protocol.Rate {
		l.Fence = protocol.Fence{}
	}
	return l
}

// left returns for how long the leases of a session are held at least. The mutex is
// held.
func (s *session) left(peer *protocol.Peer, why string) time.Duration {
	now := s.client.clock()
	switch {
	case peer.Config().Kind == protocol.Rate:
		return math.MaxInt64 // spent, and never lost
	case why != "" || peer.Ended(now):
		return 0
	}
	return micros(peer.Deadline() - now)
}
