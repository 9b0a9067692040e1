package fleet

import (
	"context"
	"errors"
	"time"
)

// A limit determines when an exchange is abandoned, because the caller that makes it gives up. The
// zero limit, that of a worker, is never reached.
type limit struct {
	ctx context.Context // ends when the caller gives up; nil: a worker
	at  time.Time       // when it gives up at the latest; zero: no such time
}

func (l limit) reached() bool {
	return l.ctx != nil && (l.ctx.Err() != nil || !l.at.IsZero() && !time.Now().Before(l.at))
}

// limit returns the limit of the exchanges that a call makes: it must not wait longer for a
// reply than [session.await] would.
func (c *call) limit(ctx context.Context, set *settings) limit {
	most := set.unavailableAfter
	if c.req.Try {
		most = min(most, set.tryTimeout)
	}
	if set.maxWait > 0 {
		most = min(most, set.maxWait)
	}
	return limit{ctx, c.start.Add(most)}
}

// becomeDriverLocked makes the caller the driver, if there is a session, and no driver
// runs or it has not begun. If it returns true, the caller must call exchangeInline.
func (s *session) becomeDriverLocked() bool {
	if s.peer == nil || s.driver.running && !s.driver.starting || !s.client.join() {
		return false
	}
	s.driver.running, s.driver.starting = true, false
	return true
}

// exchangeInline exchanges one batch in the goroutine of the waiting caller, which saves
// two goroutine wake-ups. A worker continues as the driver after that.
//
// If the caller gives up meanwhile, the exchange is abandoned: it may have taken effect or
// not, like one whose reply is lost. The worker sends the same batch again at once, which the
// store applies at most once, and the other callers of the batch get their results. A lease
// that is granted to the caller is released, see [session.withdraw]. No failure of the store
// is counted, since it may only be slower than the caller.
func (s *session) exchangeInline(l limit) {
	defer s.client.group.Done()
	next, ok := s.nextStep()
	if !ok {
		return
	}
	err := next(l)
	switch {
	case err == nil:
		if next, ok = s.nextStep(); !ok {
			return
		}
	case l.reached() && !errors.Is(err, errRejected): // a rejection is a reply
		s.client.start(s.runDriver)
		return
	default:
		next = func(limit) error { return err }
	}
	s.client.start(func() {
		s.runStep(next)
		s.runDriver()
	})
}
