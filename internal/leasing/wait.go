package leasing

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// wait sends the operations, if any, and waits for the result of the ticket.
func (s *session) wait(ctx context.Context, r Request, ops ...protocol.Op) (Lease, error) {
	start := time.Now()
	switch result, err := s.await(ctx, r, ops); {
	case err == nil:
		return s.decide(r, result, start)
	case err == errWaitOver:
		why := sema.ErrTimeout
		if r.Wait == 0 {
			why = sema.ErrFull
		}
		err = s.rejected(r, why, start)
		if r.Key != "" {
			s.cancelUnlessShared()
		} else {
			s.cancelDetached(r)
		}
		return Lease{}, err
	case errors.Is(err, sema.ErrLost): // the ticket is lost, too
		return Lease{}, err
	default:
		s.cancelDetached(r)
		return Lease{}, err
	}
}

// errWaitOver is the error of a request whose wait has passed.
var errWaitOver = errors.New("the wait is over")

// await waits until there is a result, or the wait of the request has passed.
func (s *session) await(ctx context.Context, r Request, ops []protocol.Op) (protocol.Result, error) {
	m := s.manager
	m.enqueue(s)
	defer m.dequeue(s) // before another request uses the session
	start := time.Now()
	var over <-chan time.Time // nil: no bound, or no reply yet
	for {
		results, err := s.lockAndSend(ctx, ops)
		if err != nil {
			return protocol.Result{}, err
		}
		ops = nil
		for _, f := range results {
			if f.Ticket == s.ticket && f.Kind != protocol.Revoked {
				return f, nil
			}
		}
		if over == nil && !r.Unbounded { // most requests need no timer: the first reply decides them
			timer := time.NewTimer(cmp.Or(r.Wait, storeTimeout) - time.Since(start))
			defer timer.Stop()
			over = timer.C
		}
		heartbeat := jittered(min(s.ttl/3, maxHeartbeat))
		if s.foreign {
			heartbeat = min(heartbeat, jittered(foreignPoll))
		}
		if s.sendIn > 0 {
			heartbeat = min(heartbeat, s.sendIn)
		}
		select {
		case <-s.wakeups:
		case <-time.After(heartbeat):
		case <-over:
			return protocol.Result{}, errWaitOver
		case <-ctx.Done():
			return protocol.Result{}, context.Cause(ctx)
		case <-m.life.Done():
			return protocol.Result{}, m.closed("acquire", s.semaphore)
		}
	}
}

// lockAndSend locks a session that no other goroutine uses, except for late requests for an
// earlier lease, and sends a batch.
func (s *session) lockAndSend(ctx context.Context, ops []protocol.Op) ([]protocol.Result, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	return s.sendLocked(ctx, ops...)
}

// decide returns the lease or the error of a result.
func (s *session) decide(r Request, f protocol.Result, start time.Time) (Lease, error) {
	m := s.manager
	switch {
	case f.Kind == protocol.Granted && s.config.Kind == protocol.Rate:
		m.keepIdle(s) // the permits are spent, and return by time alone
		return Lease{Semaphore: s.semaphore, Weight: f.Weight, InUse: s.inUse, Capacity: s.config.Capacity, Window: s.window()}, nil
	case f.Kind == protocol.Granted:
		s.lease, s.weight, s.slots, s.fence = f.Lease, f.Weight, f.Slots, f.Fence
		lease := s.granted()
		m.remember(s)
		m.wake(s.semaphore, wokenByGrant) // one notification may be about several grants
		return lease, nil
	}
	err := s.rejected(r, f.Kind.Err(), start)
	m.keepIdle(s)
	return Lease{}, err
}

func (s *session) rejected(r Request, why error, start time.Time) error {
	e := &sema.Error{Op: "acquire", Name: s.semaphore, Weight: r.Weight, Capacity: s.config.Capacity, InUse: s.inUse, Err: why}
	if protocol.MayChange(why) {
		e.After = s.decidedIn
	}
	if errors.Is(why, sema.ErrTimeout) {
		e.Detail = time.Since(start).Round(time.Millisecond).String()
	}
	if e.After > 0 && (errors.Is(why, sema.ErrUnavailable) || s.inUse == 0) {
		e.Detail = "the store has restarted and does not know yet what is held"
	}
	if e.After > 0 {
		s.manager.Poll(s.semaphore, s.ttl)
	}
	if s.config.Kind == protocol.Rate {
		return &RateError{e, s.window()}
	}
	return e
}

// A RateError is a rejection by a rate, whose permits return Window after they were granted.
type RateError struct {
	Rejection *sema.Error
	Window    time.Duration
}

func (e *RateError) Error() string { return e.Rejection.Error() }
func (e *RateError) Unwrap() error { return e.Rejection }

func (s *session) window() time.Duration { return time.Duration(s.config.Window) * time.Microsecond }

// cancelDetached cancels the ticket of a request that has ended, and releases a lease that was
// granted meanwhile. A request with a key may be repeated: its ticket stays in the queue for
// as long as its session is valid.
func (s *session) cancelDetached(r Request) {
	if r.Key != "" {
		return
	}
	s.finish(protocol.Op{Verb: protocol.Cancel, Ticket: s.ticket})
}

// maxHeartbeat bounds the time between two batches of a waiter, however long the TTL is. It
// bounds the delay that a lost notification causes.
const maxHeartbeat = 5 * time.Second

// foreignPoll is the poll interval of a session whose notifications another manager receives.
const foreignPoll = 250 * time.Millisecond
