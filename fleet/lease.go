package fleet

import (
	"context"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A grant is a lease at the engine. The permits that were split off it share
// it.
type grant struct {
	sem   *Semaphore
	peer  *protocol.Peer // the session it belongs to; guarded by Semaphore.mu, like what follows
	fence protocol.Fence
	since time.Time
	lost  chan struct{}
	out   int64  // how much of it is not released
	why   string // it was lost
}

// A lease is what one permit has of a grant.
type lease struct {
	grant  *grant
	weight int64
}

func (l *lease) Name() string { return l.grant.sem.name }

// Release is said to the engine with the next batch.
func (l *lease) Release() {
	l.giveBack()
	l.grant.sem.tell(sema.Event{Kind: sema.Released, Weight: l.weight, Hold: time.Since(l.grant.since)})
}

func (l *lease) giveBack() {
	g, s := l.grant, l.grant.sem
	s.mu.Lock()
	defer s.mu.Unlock()
	g.out -= l.weight
	if s.leases[g.fence.Seq] != g {
		return // lost, or of a Rate: there is nothing to give back
	}
	wish := protocol.Op{Verb: protocol.Release, Lease: g.fence.Seq, Weight: l.weight}
	if g.out == 0 {
		delete(s.leases, g.fence.Seq)
		wish.Weight = 0
	}
	s.peer.Wish(wish)
	s.drive()
}

// Split needs no word to the engine: the parts are given back one by one.
func (l *lease) Split(n int64) (first, rest sema.Lease, err error) {
	return &lease{l.grant, n}, &lease{l.grant, l.weight - n}, nil
}

// Lost is for [sema.Permit.Lost].
func (l *lease) Lost() <-chan struct{} { return l.grant.lost }

// Err is for [sema.Permit.Err]: the clock decides, whether or not somebody had
// the time to notice.
func (l *lease) Err() error {
	g, s := l.grant, l.grant.sem
	s.mu.Lock()
	defer s.mu.Unlock()
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

// loseGrant notes that a grant is gone. The mutex is held, so observers are told
// by somebody else.
func (s *Semaphore) loseGrant(g *grant, why string) {
	g.why = why
	close(g.lost)
	if s.options.Observer != nil {
		e := sema.Event{Kind: sema.Lost, Weight: g.out, Hold: time.Since(g.since), Err: s.fault("hold", g.out, sema.ErrLost, why)}
		go s.tell(e) // not a worker of the client's: the observer may close it
	}
}

// A Lease is what is known of the lease behind a permit.
type Lease struct {
	Semaphore string
	Fence     protocol.Fence // to show to what the permit guards, see [Guard]
	Left      time.Duration  // for how long the permit is surely held, if nothing more is heard
}

// LeaseOf is the lease behind a permit; ok is false if it is not a fleet
// semaphore's.
func LeaseOf(p sema.Permit) (found Lease, ok bool) {
	l, ok := p.Lease().(*lease)
	if !ok {
		return Lease{}, false
	}
	g, s := l.grant, l.grant.sem
	s.mu.Lock()
	defer s.mu.Unlock()
	left := micros(max(0, g.peer.Deadline()-s.client.clock()))
	if g.why != "" {
		left = 0
	}
	return Lease{s.name, g.fence, left}, true
}

// Release releases a permit and waits until the engine has heard of it.
func Release(ctx context.Context, p sema.Permit) error {
	l, ok := p.Lease().(*lease)
	p.Release()
	if !ok {
		return nil
	}
	return l.grant.sem.flush(ctx)
}

// flush waits until all that was wished is heard, or moot.
func (s *Semaphore) flush(ctx context.Context) error {
	s.mu.Lock()
	if s.peer == nil || s.peer.Heard() >= s.peer.Promise(maxOps) {
		s.mu.Unlock()
		return nil
	}
	said := make(chan struct{})
	s.saying = append(s.saying, said)
	s.mu.Unlock()
	select {
	case <-said:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.client.life.Done():
		return s.fault("release", 0, sema.ErrClosed, "the engine has not heard of it")
	}
}
