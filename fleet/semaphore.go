package fleet

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Semaphore is this process's handle of a fleet semaphore. It is a [sema.Gate]. Its
// session exchanges batches with the store. Its strategy, one for each [Mode], grants
// permits to callers from the leases of the session.
type Semaphore struct {
	*session
	front atomic.Pointer[generation] // front of a pool, for callers that need not wait; nil if there is none, or if acquires are observed
}

var _ sema.Gate = (*Semaphore)(nil)

func newSemaphore(c *Client, name string, capacity int64, opts []Option) (*Semaphore, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	set, err := newSettings(name, capacity, opts)
	if err != nil {
		return nil, err
	}
	s := &Semaphore{session: newSession(c, name, set)}
	s.monitor = sema.NewMonitor(monitored{s}, set.shared...)
	if set.mode == ModePooled {
		s.strategy = newPooled(s.session, &s.front)
	} else {
		s.strategy = newExact(s.session)
	}
	return s, nil
}

// Name returns the name under which the semaphore is stored.
func (s *Semaphore) Name() string { return s.name }

// Scope returns [sema.FleetScope], which determines its order in [sema.AcquireAll].
func (s *Semaphore) Scope() sema.Scope { return sema.FleetScope }

// Acquire waits for n permits, in order of arrival among all machines. It fails
//
//   - with the context's cause as soon as ctx ends;
//   - with ErrTimeout when [sema.MaxWait] has passed;
//   - with ErrUnavailable when the store does not reply for [UnavailableAfter], or for
//     MaxWait if that is shorter;
//   - with [io/fs.ErrNotExist] if it was opened with [Existing] and is not stored;
//   - for the other reasons of [sema.Semaphore.Acquire].
func (s *Semaphore) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	if g := s.front.Load(); g != nil && n > 0 && ctx != nil {
		if p, err := g.local.TryAcquire(ctx, n); err == nil {
			return p, nil
		}
	}
	c := call{op: "acquire", req: protocol.Op{Verb: protocol.Acquire, Weight: n}, start: time.Now(), wait: s.monitor.Begin(ctx, n)}
	return s.acquire(ctx, &c)
}

// TryAcquire acquires n permits if they are free and no caller waits, or else fails
// with ErrFull. It sends one batch and never queues. It fails with ErrUnavailable if the
// store does not reply within TryTimeout.
//
// The store may be unable to decide yet, because a holder may have expired or because the
// store has restarted. Then TryAcquire fails with ErrFull or ErrUnavailable, and the After
// of the error is positive. The client polls the store until then, so that the next try
// is decided.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	if g := s.front.Load(); g != nil && n > 0 && ctx != nil {
		if p, err := g.local.TryAcquire(ctx, n); err == nil {
			return p, nil
		}
	}
	c := call{op: "try", req: protocol.Op{Verb: protocol.Acquire, Weight: n, Try: true}, start: time.Now(), wait: s.monitor.BeginTry(ctx, n)}
	return s.acquire(ctx, &c)
}

// lease acquires a block for a region.
func (s *Semaphore) lease(ctx context.Context, weight, least int64) (sema.Permit, error) {
	c := call{op: "lease", req: protocol.Op{Verb: protocol.Acquire, Weight: weight, Least: least, Pooled: true}, start: time.Now()}
	return s.acquire(ctx, &c)
}

// acquire acquires from the store, or from the local limit while that applies.
func (s *Semaphore) acquire(ctx context.Context, c *call) (permit sema.Permit, err error) {
	switch {
	case ctx == nil:
		err = s.fault(c.op, c.weight(), sema.ErrInvalid, "nil context")
	case c.req.Weight < 0:
		err = s.fault(c.op, c.weight(), sema.ErrInvalid, "negative weight")
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		// A caller whose wait ends because the local limit starts or stops to apply
		// continues at the other gate.
		for err = errRecovered; err == errRecovered; {
			if permit, err = s.strategy.acquire(ctx, c); err == errFailedOpen {
				permit, err = s.failOpen.acquire(ctx, c)
			}
		}
	}
	if err != nil {
		s.countFailure(c, err)
		return sema.Permit{}, c.wait.Failed(err)
	}
	return permit, nil
}
