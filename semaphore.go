package sema

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// A Gate grants permits. Semaphores of every scope, their classes and their
// decorators implement it. To implement a Gate, use [NewPermit] or an [Issuer].
type Gate interface {
	// Acquire waits until n permits are acquired or ctx ends.
	Acquire(ctx context.Context, n int64) (Permit, error)
	// TryAcquire acquires n permits without waiting, or fails with ErrFull. It
	// never overtakes the waiters of a fair queue.
	TryAcquire(ctx context.Context, n int64) (Permit, error)
}

// A Semaphore bounds how much of a resource the goroutines of this process use
// at once. Create one with [New]. All methods may be called concurrently.
type Semaphore struct {
	core    core
	issuer  Issuer
	monitor *Monitor      // nil unless observed or diagnosed
	maxWait time.Duration // 0: no bound
	name    string
}

var _ Gate = (*Semaphore)(nil)

var lastID atomic.Uint64

// New returns a semaphore with capacity permits, all free. A capacity of 0
// pauses the semaphore until a Resize. A capacity above [MaxCapacity] means
// unlimited. New panics if capacity is negative.
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

// Name returns the name that the option [Name] set, or "".
func (s *Semaphore) Name() string { return s.name }

// Acquire acquires n permits and returns them as one Permit. It waits in the queue
// while too few permits are free. It fails
//
//   - with the context's cause as soon as ctx ends, and at once if it has ended;
//   - with ErrTooLarge if n exceeds the capacity, now or after a Resize;
//   - with ErrQueueFull or ErrTimeout (options MaxWaiters and MaxWait);
//   - with ErrDraining or ErrClosed;
//   - with ErrInvalid if n is negative or ctx is nil.
//
// A weight of 0 is granted at once as an inert permit.
func (s *Semaphore) Acquire(ctx context.Context, n int64) (Permit, error) {
	if s.monitor != nil || uint64(n-1) >= maxCount || ctx == nil || ctx.Err() != nil {
		return s.acquire(ctx, n)
	}
	if s.core.take(uint64(n)) {
		return s.issuer.Permit(n), nil
	}
	// The goroutine parks here and not in a function of the core: each cache line of its
	// stack between the caller and the runtime costs a long wait two cache misses. With the
	// frame of acquire, the stack would even have to grow.
	s.mustBeNew("acquire")
	w, v := s.core.enter(uint64(n), ctx.Done())
	switch {
	case v != pending:
	case s.maxWait > 0:
		v = s.core.parkUpTo(ctx, w, s.maxWait)
	case w.follows || w.done == nil:
		v = s.core.received(ctx, w, uint64(n), <-w.token)
	default:
		select {
		case t := <-w.token:
			v = s.core.received(ctx, w, uint64(n), t)
		case <-w.done:
			v = s.core.leave(ctx, w, cancelled)
		}
	}
	switch v {
	case granted:
		return s.issuer.Permit(n), nil
	case cancelled:
		return Permit{}, context.Cause(ctx)
	}
	return s.failed(ctx, n, v)
}

// failed returns the error of an Acquire without a monitor.
func (s *Semaphore) failed(ctx context.Context, n int64, v status) (Permit, error) {
	watch := s.monitor.BeginTry(ctx, n)
	return s.conclude(ctx, "acquire", &watch, v)
}

// TryAcquire acquires n permits without waiting. It fails with ErrFull if too few
// permits are free, or if others wait in a fair queue: it never overtakes them. Its
// other errors are those of Acquire.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (Permit, error) {
	if s.monitor == nil && uint64(n-1) < maxCount && ctx != nil && ctx.Err() == nil && s.core.take(uint64(n)) {
		return s.issuer.Permit(n), nil
	}
	return s.tryAcquire(ctx, n)
}

func (s *Semaphore) acquire(ctx context.Context, n int64) (Permit, error) {
	const op = "acquire"
	if n <= 0 || n > MaxCapacity || ctx == nil || ctx.Err() != nil {
		return s.acquireTrivial(ctx, op, n)
	}
	s.mustBeNew(op)
	if m := s.monitor; m != nil && !m.traces && s.core.takeAgain(uint64(n)) {
		return m.issue(&s.issuer, n), nil // as below, without the steps that only a wait or a trace needs
	}
	watch := s.monitor.Begin(ctx, n)
	if s.monitor != nil { // reports before it queues
		v := s.core.tryOrWait(uint64(n))
		if v != pending {
			return s.conclude(ctx, op, &watch, v)
		}
		watch.Queued()
		if ctx.Err() != nil { // ctx may have ended while observers ran
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
		return s.acquireTrivial(ctx, op, n)
	}
	s.mustBeNew(op)
	watch := s.monitor.BeginTry(ctx, n)
	return s.conclude(ctx, op, &watch, s.core.tryTake(uint64(n)))
}

// TryAcquireFree acquires all permits that are free now, as one Permit. It fails with
// ErrFull if none is free, or if others wait for them in a fair queue. Its other errors
// are those of Acquire.
func (s *Semaphore) TryAcquireFree(ctx context.Context) (Permit, error) {
	const op = "try all"
	if ctx == nil || ctx.Err() != nil {
		return s.acquireTrivial(ctx, op, 0)
	}
	s.mustBeNew(op)
	n, v := s.core.takeAll()
	watch := s.monitor.BeginTry(ctx, int64(n))
	return s.conclude(ctx, op, &watch, v)
}

// acquireTrivial handles calls that take nothing from the core. It checks in the
// order in which the guarantees rank: an invalid argument, an ended context, a
// rejection. Weight 0 is granted.
func (s *Semaphore) acquireTrivial(ctx context.Context, op string, n int64) (Permit, error) {
	var err error
	switch {
	case ctx == nil:
		err = s.fault(op, n, ErrInvalid, nilContext)
	case n < 0:
		err = s.fault(op, n, ErrInvalid, "negative weight")
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case n > MaxCapacity:
		s.core.count(tooLarge)
		err = s.fault(op, n, ErrTooLarge, "")
	default: // n == 0
		s.mustBeNew(op)
		v := s.core.checkOpen()
		if v == granted {
			return Permit{}, nil
		}
		err = s.rejection(op, 0, v)
	}
	watch := s.monitor.BeginTry(ctx, n)
	return Permit{}, watch.Failed(err)
}

// conclude converts a final status into a permit or an error, and reports it.
func (s *Semaphore) conclude(ctx context.Context, op string, watch *Wait, v status) (Permit, error) {
	switch v {
	case granted:
		return watch.Granted(&s.issuer), nil
	case cancelled:
		return Permit{}, watch.Failed(context.Cause(ctx))
	}
	return Permit{}, watch.Failed(s.rejection(op, watch.weight, v))
}

// A semaphoreOwner is a Semaphore with the methods that its issuer calls.
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

// mustBeNew panics on a Semaphore that New did not create. Such a Semaphore has
// no capacity and cannot get one.
func (s *Semaphore) mustBeNew(op string) {
	if s.core.id == 0 {
		panic("sema: " + op + " on a zero Semaphore; create it with sema.New")
	}
}

// checkCapacity returns capacity, at most MaxCapacity. It panics if capacity is
// negative.
func checkCapacity(op, name string, capacity int64) uint64 {
	if capacity < 0 {
		panic(fmt.Sprintf("sema: %q: %s(%d): capacity is negative; use 0 to pause", name, op, capacity))
	}
	return uint64(min(capacity, MaxCapacity))
}
