package fleet

import (
	"context"
	"time"

	"github.com/sema-go/sema"
)

// A Lease describes the lease behind a permit.
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

// Release releases a permit and waits until the store has confirmed it. It fails with
// ErrLost if the permit was lost before; with the context's cause, or ErrUnavailable,
// if the store does not confirm it: then the permit is free after its TTL. A permit of
// a pool returns to the pool. Without a context the permit is not released.
func Release(ctx context.Context, p sema.Permit) error {
	if err := checkContext(ctx, "release", ""); err != nil {
		return err
	}
	var s *session
	switch l := p.Lease().(type) {
	case *lease:
		s = l.grant.of.session
	case *localLease:
		s = l.session
	default:
		if g, pooled := p.Backing().(*generation); pooled {
			s = g.of.session
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

// An unheard waits for the reply to a batch.
type unheard struct {
	seq  uint64
	done chan struct{}
	lost string // why there will be none
}

func (u *unheard) end(lost string) {
	u.lost = lost
	close(u.done)
}

// flush waits until the store has replied to all that was requested so far, or the
// session is lost.
func (s *session) flush(ctx context.Context) error {
	s.mu.Lock()
	if s.peer == nil || s.peer.Replied() >= s.peer.Promise(maxOps) {
		s.mu.Unlock()
		return nil
	}
	u := &unheard{seq: s.peer.Promise(maxOps), done: make(chan struct{})}
	s.unheard = append(s.unheard, u)
	s.mu.Unlock()
	select {
	case <-u.done:
		if u.lost == "" || u.lost == errForgotten.Error() {
			return nil // the store has freed it
		}
		return s.fault("release", 0, sema.ErrUnavailable, "not confirmed by the store; the permit is free after its TTL")
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.client.life.Done():
		return s.fault("release", 0, sema.ErrClosed, "not confirmed by the store")
	}
}

// endFlushes ends all flushes, since there will be no reply. The mutex is held.
func (s *session) endFlushes(why string) {
	for _, u := range s.unheard {
		u.end(why)
	}
	s.unheard = nil
}

// noteHeard ends the flushes to which the store has replied. The mutex is held.
func (s *session) noteHeard() {
	rest := s.unheard[:0]
	for _, u := range s.unheard {
		if s.peer.Replied() >= u.seq {
			u.end("")
		} else {
			rest = append(rest, u)
		}
	}
	s.unheard = rest
}
