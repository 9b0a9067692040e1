package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/sema-go/sema"
)

// admitted makes the permit and tells of it. Should the observer panic, the
// permit is not lost with the stack.
func (s *Semaphore) admitted(l *lease, start time.Time) sema.Permit {
	permit := sema.NewPermit(l.weight, l)
	if s.options.Observer == nil {
		return permit
	}
	told := false
	defer func() {
		if !told {
			permit.Release()
		}
	}()
	s.tell(sema.Event{Kind: sema.Acquired, Weight: l.weight, Wait: time.Since(start)})
	told = true
	return permit
}

// tellQueued tells of somebody in line. Should the observer panic, nobody is
// left there.
func (s *Semaphore) tellQueued(w *waiter) {
	told := false
	defer func() {
		if !told {
			s.withdraw(w)
		}
	}()
	s.tell(sema.Event{Kind: sema.Queued, Weight: w.op.Weight})
	told = true
}

func (s *Semaphore) refused(ctx context.Context, n int64, start time.Time, err error) {
	kind := sema.Rejected
	switch {
	case errors.Is(err, sema.ErrTimeout):
		kind = sema.TimedOut
	case ctx != nil && ctx.Err() != nil:
		kind = sema.Cancelled
	}
	s.tell(sema.Event{Kind: kind, Weight: n, Wait: time.Since(start), Err: err})
}

func (s *Semaphore) tell(e sema.Event) {
	if s.options.Observer == nil {
		return
	}
	e.Name = s.name
	s.mu.Lock()
	e.Waiters = len(s.waiters)
	s.mu.Unlock()
	s.options.Observer.Observe(e)
}
