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
	Fence     Fence         // for the resource that the permit protects, see [Guard]; zero for a rate
	Left      time.Duration // how long the permit is held at least, should the store not reply any more
}

// LeaseOf returns the lease behind a permit. It returns false if the permit is not of a
// fleet semaphore, or was acquired from the local limit of [FailOpen]. Permits of a pool
// share a lease, so their fence distinguishes sessions and not single permits.
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
// ErrLost if the permit was lost before. It fails with the context's cause, or with
// ErrUnavailable, if the store does not confirm it; the permit is then free after its TTL.
// A permit of a pool returns to the pool. If ctx is nil, the permit is not released.
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
	l, own := p.Lease().(*lease)
	inline := own && ctx.Err() == nil && s.monitor == nil // an observer could panic before the flush
	if inline {
		l.releaseQuietly()
	}
	p.Release()
	if own && lost == nil {
		lost = l.Err() // it may have been lost between Err and Release
	}
	switch {
	case s == nil:
		return lost
	case lost != nil:
		s.wakeDriver()
		return lost
	}
	return s.flush(ctx, inline)
}

// releaseQuietly makes the release leave it to the caller to send the batch.
func (l *lease) releaseQuietly() {
	l.grant.of.mu.Lock()
	defer l.grant.of.mu.Unlock()
	l.quiet = true
}

// A pendingFlush waits for the reply to a batch.
type pendingFlush struct {
	seq  uint64
	done chan struct{}
	lost string // why no reply will come; "" if the store has replied
}

func (u *pendingFlush) end(lost string) {
	u.lost = lost
	close(u.done)
}

// flush waits until the store has replied to all operations that were requested before the
// call, or until the session is lost. An inline caller may send the batch itself.
func (s *session) flush(ctx context.Context, inline bool) error {
	s.mu.Lock()
	if s.peer == nil || s.peer.Replied() >= s.peer.LastSeq(maxOps) {
		s.mu.Unlock()
		return nil
	}
	u := &pendingFlush{seq: s.peer.LastSeq(maxOps), done: make(chan struct{})}
	s.flushes = append(s.flushes, u)
	if inline = inline && s.becomeDriverLocked(); !inline {
		s.startDriverLocked()
	}
	s.mu.Unlock()
	if inline {
		s.exchangeInline(limit{ctx: ctx})
	}
	select {
	case <-u.done:
		if u.lost == "" || u.lost == errUnknownSession.Error() {
			return nil // the store has freed the permit
		}
		return s.fault("release", 0, sema.ErrUnavailable, "not confirmed by the store; the permit is free after its TTL")
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.client.life.Done():
		return s.fault("release", 0, sema.ErrClosed, "not confirmed by the store")
	}
}

// endFlushesLocked ends all flushes, to which no reply will come.
func (s *session) endFlushesLocked(why string) {
	for _, u := range s.flushes {
		u.end(why)
	}
	s.flushes = nil
}

// endConfirmedFlushesLocked ends the flushes to which the store has replied.
func (s *session) endConfirmedFlushesLocked() {
	rest := s.flushes[:0]
	for _, u := range s.flushes {
		if s.peer.Replied() >= u.seq {
			u.end("")
		} else {
			rest = append(rest, u)
		}
	}
	s.flushes = rest
}
