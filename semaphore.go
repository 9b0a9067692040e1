package sema

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// A Gate hands out permits: every scope, class and decorator is one.
// Implement it with [NewPermit].
type Gate interface {
	// Acquire waits until n permits are acquired or ctx ends.
	Acquire(ctx context.Context, n int64) (Permit, error)
	// TryAcquire fails with ErrFull instead of waiting. It never overtakes a
	// queue that is fair.
	TryAcquire(ctx context.Context, n int64) (Permit, error)
}

// A Semaphore bounds how much of something the goroutines of this process use
// at once. Make it with [New]. All methods may be called concurrently.
type Semaphore struct {
	core    core
	issuer  Issuer
	monitor *Monitor // nil unless observed or diagnosed
	maxWait time.Duration
	name    string
}

var _ Gate = (*Semaphore)(nil)

var lastID atomic.Uint64

// New makes a semaphore with capacity permits, all free. Capacity 0 is a
// semaphore that is paused until a Resize; anything above [MaxCapacity] means
// unlimited. It panics on a negative capacity.
func New(capacity int64, opts ...Option) *Semaphore {
	conf := newConfig(opts)
	s := &Semaphore{maxWait: conf.MaxWait, name: conf.Name}
	s.core.id = lastID.Add(1)
	s.core.order = conf.Order
	s.core.parkOversize = conf.parkOversize
	s.core.queueLimit = queueLimit(conf.MaxWaiters)
	s.core.init(checkCapacity("New", conf.Name, capacity))
	if s.monitor = conf.newMonitor(); s.monitor != nil {
		s.monitor.core, s.monitor.stats = &s.core, s
	}
	s.issuer.Init((*semaphoreOwner)(s), s.monitor)
	s.issuer.backing = conf.backing
	return s
}

// Name is what the option [Name] gave it.
func (s *Semaphore) Name() string { return s.name }

// Acquire waits for n permits, in turn, and returns them as one. It fails
//
//   - with the context's cause as soon as ctx ends, and at once if it has ended;
//   - with ErrTooLarge if n exceeds the capacity, now or after a Resize;
//   - with ErrQueueFull, ErrTimeout (options MaxWaiters, MaxWait), ErrDraining
//     or ErrClosed;
//   - with ErrInvalid if n is negative or ctx nil.
//
// A weight of 0 is granted at once, without waiting, as an inert permit.
func (s *Semaphore) Acquire(ctx context.Context, n int64) (Permit, error) {
	if s.monitor == nil && uint64(n-1) < maxCount && ctx != nil && ctx.Err() == nil && s.core.take(uint64(n)) {
		return s.issuer.Permit(n), nil
	}
	return s.acquire(ctx, n)
}

// TryAcquire takes n permits if they are free, and never past a fair queue. Otherwise
// it fails with ErrFull, or like Acquire.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (Permit, error) {
	if s.monitor == nil && uint64(n-1) < maxCount && ctx != nil && ctx.Err() == nil && s.core.take(uint64(n)) {
		return s.issuer.Permit(n), nil
	}
	return s.tryAcquire(ctx, n)
}

func (s *Semaphore) acquire(ctx context.Context, n int64) (Permit, error) {
	const op = "acquire"
	if n <= 0 || n > MaxCapacity || ctx == nil || ctx.Err() != nil {
		return s.unusual(ctx, op, n)
	}
	s.mustBeNew(op)
	if m := s.monitor; m != nil && !m.traces && s.core.takeAgain(uint64(n)) {
		return m.issue(&s.issuer, n), nil // as below, without what only a wait or a trace needs
	}
	watch := s.monitor.Begin(ctx, n)
	if s.monitor != nil { // reports first, and queues afterwards
		v := s.core.tryOrWait(uint64(n))
		if v != pending {
			return s.conclude(ctx, op, &watch, v)
		}
		watch.Queued()
		if ctx.Err() != nil { // it may have ended while observers ran
			return s.conclude(ctx, op, &watch, cancelled)
		}
	}
	w, v := s.core.enter(uint64(n), ctx.Done())
	if v == pending {
		v = s.core.park(ctx, w, s.maxWait)
	}
	return s.conclude(ctx, op, &watch, v)
}

func (s *Semaphore) tryAcquire(ctx context.Context, n int64) (Permit, error) {
	const op = "try"
	if n <= 0 || n > MaxCapacity || ctx == nil || ctx.Err() != nil {
		return s.unusual(ctx, op, n)
	}
	s.mustBeNew(op)
	watch := s.monitor.begin(ctx, n)
	return s.conclude(ctx, op, &watch, s.core.tryTake(uint64(n)))
}

// TryAcquireFree takes whatever is free now, as one permit, and fails with
// ErrFull if that is nothing or others are waiting for it.
func (s *Semaphore) TryAcquireFree(ctx context.Context) (Permit, error) {
	const op = "try all"
	if ctx == nil || ctx.Err() != nil {
		return s.unusual(ctx, op, 0)
	}
	s.mustBeNew(op)
	n, v := s.core.takeAll()
	watch := s.monitor.begin(ctx, int64(n))
	return s.conclude(ctx, op, &watch, v)
}

// unusual answers calls that a semaphore need not be asked about, in the order
// in which the guarantees rank: a mistake, an ended context, a rejection.
func (s *Semaphore) unusual(ctx context.Context, op string, n int64) (Permit, error) {
	var err error
	switch {
	case ctx == nil:
		err = s.fault(op, n, ErrInvalid, nilContext)
	case n < 0:
		err = s.fault(op, n, ErrInvalid, "negative weight")
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case n > MaxCapacity:
		s.core.counted(tooLarge)
		err = s.fault(op, n, ErrTooLarge, "")
	default: // n == 0
		s.mustBeNew(op)
		v := s.core.closedFor()
		if v == granted {
			return Permit{}, nil
		}
		err = s.rejection(op, 0, v)
	}
	watch := s.monitor.begin(ctx, n)
	return Permit{}, watch.Failed(err)
}

// conclude turns a status into a permit or an error, and reports it.
func (s *Semaphore) conclude(ctx context.Context, op string, watch *Wait, v status) (Permit, error) {
	switch v {
	case granted:
		return watch.Granted(&s.issuer), nil
	case cancelled:
		return Permit{}, watch.Failed(context.Cause(ctx))
	}
	return Permit{}, watch.Failed(s.rejection(op, watch.weight, v))
}

// A semaphoreOwner is a Semaphore as its issuer sees it.
type semaphoreOwner Semaphore

// TakeBack implements [Owner].
func (s *semaphoreOwner) TakeBack(n int64) { s.core.give(uint64(n)) }

// Name implements [Owner].
func (s *semaphoreOwner) Name() string { return s.name }

func (s *Semaphore) rejection(op string, n int64, v status) error {
	detail := ""
	if v == timedOut {
		detail = s.maxWait.String()
	}
	return s.fault(op, n, sentinelOf(v), detail)
}

func (s *Semaphore) fault(op string, n int64, err error, detail string) error {
	st := s.core.stats()
	return &Error{Op: op, Name: s.name, Weight: n, Err: err, Detail: detail,
		Capacity: st.Capacity, InUse: st.InUse, Waiters: st.Waiters}
}

// mustBeNew panics on a Semaphore that did not come from New: it has no
// capacity and no way to get one.
func (s *Semaphore) mustBeNew(op string) {
	if s.core.id == 0 {
		panic("sema: " + op + " on a zero Semaphore; make it with sema.New")
	}
}

// checkCapacity panics on a negative capacity and caps an unlimited one.
func checkCapacity(op, name string, capacity int64) uint64 {
	if capacity < 0 {
		panic(fmt.Sprintf("sema: %q: %s(%d): capacity is negative; use 0 to pause", name, op, capacity))
	}
	return uint64(min(capacity, MaxCapacity))
}
