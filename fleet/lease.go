package fleet

import (
	"context"
	"math"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A grant is a lease at the store. Each permit has one of its own, with a fence of
// its own; the parts of a rate's permit and of a region's block share it.
type grant struct {
	sem   *Semaphore
	peer  *protocol.Peer // the session it belongs to; guarded by Semaphore.mu, like what follows
	fence protocol.Fence
	since time.Time
	lost  chan struct{}
	out   int64  // how much of it is not released
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
	ended  bool  // released; guarded by Semaphore.mu
	err    error // that Err had when it was
}

// lend makes what a waiter is given. What is of a Rate is spent, and never lost.
// The mutex is held.
func (s *Semaphore) lend(f protocol.Result, block bool) *lease {
	g := &grant{sem: s, block: block, peer: s.peer, fence: f.Fence, since: time.Now(), out: f.Weight, lost: make(chan struct{})}
	if s.peer.Config().Kind == protocol.Concurrency {
		s.leases[f.Lease] = g
	}
	return &lease{grant: g, weight: f.Weight}
}

func (l *lease) Name() string { return l.grant.sem.settings.label }

// Release implements [sema.Lease]. It is sent to the store with the next batch.
func (l *lease) Release() { l.giveBack() }

func (l *lease) giveBack() {
	g, s := l.grant, l.grant.sem
	s.mu.Lock()
	defer s.mu.Unlock()
	l.err = l.failure()
	l.ended = true
	g.out -= l.weight
	s.inUse.Add(-l.weight) // until the next reply
	if s.leases[g.fence.Seq] != g {
		return // lost, or of a Rate: there is nothing to give back
	}
	if g.out > 0 {
		s.release(protocol.Op{Verb: protocol.Release, Lease: g.fence.Seq, Weight: l.weight})
		return
	}
	delete(s.leases, g.fence.Seq)
	s.release(protocol.Op{Verb: protocol.Release, Lease: g.fence.Seq})
	for _, part := range g.parts {
		s.release(protocol.Op{Verb: protocol.Release, Lease: part})
	}
}

// release says it to the engine. The mutex is held.
func (s *Semaphore) release(wish protocol.Op) {
	s.counts.Releases++
	s.peer.Wish(wish)
	s.drive()
}

// Lost is for [sema.Permit.Lost].
func (l *lease) Lost() <-chan struct{} { return l.grant.lost }

// Err is for [sema.Permit.Err]: the clock decides, whether or not somebody had
// the time to notice.
func (l *lease) Err() error {
	l.grant.sem.mu.Lock()
	defer l.grant.sem.mu.Unlock()
	if l.ended {
		return l.err
	}
	return l.failure()
}

// failure is why the lease is not held any more. The mutex is held.
func (l *lease) failure() error {
	g, s := l.grant, l.grant.sem
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

// loseGrant notes that a grant is gone. The mutex is held.
func (s *Semaphore) loseGrant(g *grant, why string) {
	g.why = why
	close(g.lost)
	s.tellLater(sema.Event{Kind: sema.EventLost, Weight: g.out, Hold: time.Since(g.since), Err: s.fault("hold", g.out, sema.ErrLost, why)})
}

// revoked takes a lease, or a block, away. The mutex is held.
func (s *Semaphore) revoked(f protocol.Result) {
	if g := s.leases[f.Lease]; g != nil {
		delete(s.leases, f.Lease)
		s.loseGrant(g, f.Note)
		return
	}
	s.revokeBlock(f)
}

// held is the weight of all permits that are out, those of pools included. The
// mutex is held.
func (s *Semaphore) held() (sum int64) {
	for _, g := range s.leases {
		sum += g.out
	}
	for _, g := range s.pool.generations() {
		sum += g.local.Stats().InUse
	}
	return sum
}

// A Lease is what is known of the lease behind a permit.
type Lease struct {
	Semaphore string
	ID        LeaseID       // as in [Info] and [Revocation]
	Fence     Fence         // to show to what the permit protects, see [Guard]; zero for a rate
	Left      time.Duration // for how long the permit is held at least, if the store does not reply any more
}

// LeaseOf returns the lease behind a permit; ok is false if it is not a fleet
// semaphore's, or was acquired while that had failed open. Permits of a pool share
// one: its fence tells them from those of other sessions, not from each other.
func LeaseOf(p sema.Permit) (found Lease, ok bool) {
	switch l := p.Lease().(type) {
	case *lease:
		found, ok = l.grant.describe(), true
	case *localLease:
		found, ok = LeaseOf(l.inner)
	default:
		g, pooled := p.Backing().(*generation)
		if !pooled {
			return Lease{}, false
		}
		found, ok = g.describe(), true
	}
	if !p.Held() {
		found.Left = 0
	}
	return found, ok
}

func (g *grant) describe() Lease {
	s := g.sem
	s.mu.Lock()
	defer s.mu.Unlock()
	l := Lease{s.name, g.fence.Seq, g.fence, s.left(g.peer, g.why)}
	if g.peer.Config().Kind == protocol.Rate {
		l.Fence = protocol.Fence{}
	}
	return l
}

// left is for how long what a session has is surely its own. The mutex is held.
func (s *Semaphore) left(peer *protocol.Peer, why string) time.Duration {
	now := s.client.clock()
	switch {
	case peer.Config().Kind == protocol.Rate:
		return math.MaxInt64 // spent, and never lost
	case why != "" || peer.Ended(now):
		return 0
	}
	return micros(peer.Deadline() - now)
}

// Release releases a permit and waits until the store has confirmed it. It fails with
// ErrLost if the permit was lost before; with the context's cause, or ErrUnavailable,
// if the store does not confirm it: then the permit is free after its TTL. A permit of
// a pool returns to the pool. Without a context the permit is not released.
func Release(ctx context.Context, p sema.Permit) error {
	if err := checkContext(ctx, "release", ""); err != nil {
		return err
	}
	var s *Semaphore
	switch l := p.Lease().(type) {
	case *lease:
		s = l.grant.sem
	case *localLease:
		s = l.sem
	default:
		if g, pooled := p.Backing().(*generation); pooled {
			s = g.sem
		}
	}
	lost := p.Err()
	p.Release()
	if l, own := p.Lease().(*lease); own && lost == nil {
		lost = l.Err() // it may have been lost just before it was released
	}
	if s == nil || lost != nil {
		return lost
	}
	return s.flush(ctx)
}

// An unheard is somebody who waits until a batch is answered.
type unheard struct {
	seq  uint64
	done chan struct{}
	lost string // why it will not be
}

func (u *unheard) end(lost string) {
	u.lost = lost
	close(u.done)
}

// flush waits until all that was wished so far is heard, or moot.
func (s *Semaphore) flush(ctx context.Context) error {
	s.mu.Lock()
	if s.peer == nil || s.peer.Heard() >= s.peer.Promise(maxOps) {
		s.mu.Unlock()
		return nil
	}
	u := &unheard{seq: s.peer.Promise(maxOps), done: make(chan struct{})}
	s.unheard = append(s.unheard, u)
	s.mu.Unlock()
	select {
	case <-u.done:
		if u.lost == "" || u.lost == errForgotten.Error() {
			return nil // it is known to be free
		}
		return s.fault("release", 0, sema.ErrUnavailable, "not confirmed by the store; the permit is free after its TTL")
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.client.life.Done():
		return s.fault("release", 0, sema.ErrClosed, "not confirmed by the store")
	}
}

// noteHeard tells who waits for it that batches were answered. The mutex is
// held.
func (s *Semaphore) noteHeard() {
	rest := s.unheard[:0]
	for _, u := range s.unheard {
		if s.peer.Heard() >= u.seq {
			u.end("")
		} else {
			rest = append(rest, u)
		}
	}
	s.unheard = rest
}
