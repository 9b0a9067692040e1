package wfq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/list"
)

// A Class is the gate of one tenant, tier or kind of work. [Queue.Class] returns it. It is
// safe for concurrent use. Keep it if it is used often: that saves a look-up by name, and an
// idle class keeps its counters. They begin at 0 if it was garbage-collected in between.
type Class struct{ class *class }

var _ sema.Gate = (*Class)(nil)

// Acquire acquires n permits, and waits while too few are free or it is the turn of
// others. It fails as [sema.Semaphore.Acquire] does. More than the capacity or the Max of
// the class is [sema.ErrTooLarge].
//
// A caller whose context carries a permit of another queue ([sema.Do] and
// [sema.Permit.Context] put it there) inherits the tier of those that wait for that permit.
// So a high tier never waits for a low one that waits behind tiers in between. Permits of
// [sema.AcquireAll] are not looked into.
func (c *Class) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	p, err := c.class.Acquire(ctx, n)
	runtime.KeepAlive(c) // or else the class could be deleted meanwhile
	return p, err
}

// TryAcquire acquires n permits without waiting. It fails with [sema.ErrFull] if too few
// are free, or if it is the turn of others. The After of the error is [Class.ExpectedWait].
func (c *Class) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	p, err := c.class.TryAcquire(ctx, n)
	runtime.KeepAlive(c)
	return p, err
}

// Name returns the name of the class.
func (c *Class) Name() string { return c.class.name }

// Queue returns the queue of the class.
func (c *Class) Queue() *Queue { return c.class.q }

// Share returns the share of the class.
func (c *Class) Share() Share { return c.class.details().Share }

// A class is a class as its queue has it.
type class struct {
	q       *Queue        // fixed, like the name
	name    string        //
	monitor *sema.Monitor // fixed; nil unless observed or diagnosed
	issuer  sema.Issuer
	leased  atomic.Int64 // permits that issuer did not issue, see Over

	// inUse is the number of permits held. It changes without the mutex while the queue is
	// calm. A caller that fails to take from Queue.word raises it for a moment. So under
	// the mutex it may be too high, never too low; that caller then locks the mutex and
	// serves the queue again. Meanwhile a try of another caller may fail.
	inUse atomic.Int64
	limit atomic.Int64 // Share.limit
	// orphan: no Class refers to it, and it could not be deleted because permits were held.
	// The release of the last one deletes it.
	orphan atomic.Bool

	// The mutex of the queue guards what follows.

	share  Share
	pinned bool // was set
	tier   *tier
	linger list.Node[*class] // in Queue.lingering

	queue      list.List[*waiter] // in order of arrival
	urgent     []*waiter          // those with an inherited tier, the highest first; not in queue
	waiters    int
	arrivals   int64             // sum of waiter.since
	queued     int64             // weight of all waiters
	squares    float64           // sum of the squares of the weights of all waiters
	backlogged list.Node[*class] // in Queue.backlog
	length     list.Node[*class] // in tier.lengths
	listed     int               // index in tier.lengths; 0: not in it
	overload   overload
	pace       pace

	asking int64 // permits of inUse that are yet to be acquired from the gate behind the queue

	start float64 // virtual time: permit-ns used per weight
	at    int64   // until when start counts what is in use, in busy time
	hold  meanHold
	heap  *classHeap // that contains the class; nil: none
	index int        // in heap
	aged  int        // index in tier.aged, plus 1; 0: not in it

	counts sema.Counts // without Acquired
}

// Acquire implements [Class.Acquire].
func (c *class) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	if c.monitor == nil && ctx != nil && ctx.Err() == nil && c.take(n) {
		return c.issuer.Permit(n), nil
	}
	return c.acquire(ctx, "acquire", n, true)
}

// TryAcquire implements [Class.TryAcquire].
func (c *class) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	if c.monitor == nil && ctx != nil && ctx.Err() == nil && c.take(n) {
		return c.issuer.Permit(n), nil
	}
	return c.acquire(ctx, "try", n, false)
}

// take takes n permits while the queue is calm: one add on the class, one CAS on the
// queue, no lock and no clock. It returns false if the queue must decide.
func (c *class) take(n int64) bool { return c.takeFrom(c.q.word.Load(), n) }

// takeFrom takes n permits, given a value that word has had.
func (c *class) takeFrom(old uint64, n int64) bool {
	q := c.q
	// One comparison: if n ≤ 0, n is too large or the queue is slow, the difference
	// exceeds the capacity.
	if n <= 0 || old-uint64(n) > uint64(sema.MaxCapacity) || q.under != nil {
		return false
	}
	if c.inUse.Add(n) > c.limit.Load() {
		c.untake(n)
		return false
	}
	for !q.word.CompareAndSwap(old, old-uint64(n)) {
		if old = q.word.Load(); old-uint64(n) > uint64(sema.MaxCapacity) {
			c.untake(n)
			return false
		}
	}
	return true
}

// untake ends a take that fails. Waiters that found the class at its limit because of it are
// served.
func (c *class) untake(n int64) {
	c.inUse.Add(-n)
	c.q.lock()
	c.placeLocked()
	c.q.unlock()
}

// A classOwner is a class with the methods that its issuer calls.
type classOwner class

// Name implements [sema.Owner].
func (o *classOwner) Name() string { return o.q.settings.Name }

// TakeBack implements [sema.Owner].
//
// While the queue is calm, the class comes first: a waiter that found it at its limit has
// made the queue slow before, so the CAS fails and this caller serves the waiter.
func (o *classOwner) TakeBack(n int64) {
	c := (*class)(o)
	c.takeBackFrom(c.q.word.Load(), n)
}

// takeBackFrom returns n permits, given a value that word has had.
func (c *class) takeBackFrom(old uint64, n int64) {
	if old == slowFlag {
		c.takeBackSlow(n, n)
		return
	}
	c.inUse.Add(-n)
	for !c.q.word.CompareAndSwap(old, old+uint64(n)) {
		if old = c.q.word.Load(); old == slowFlag {
			c.takeBackSlow(n, 0)
			return
		}
	}
	if c.orphan.Load() {
		c.drop()
	}
}

// takeBackSlow returns n permits under the mutex, of which inUse still counts some.
func (c *class) takeBackSlow(n, counted int64) {
	q := c.q
	q.lock()
	defer q.unlock()
	c.integrateLocked()
	c.inUse.Add(-counted)
	q.free += n
	if q.waiters > 0 {
		c.hold.released(n)
		q.hold.released(n)
	}
	c.placeLocked()
	if c.orphan.Load() {
		c.dropLocked()
	}
	q.sweepLocked(1)
}

// acquire decides a call that take could not.
func (c *class) acquire(ctx context.Context, op string, n int64, mayWait bool) (sema.Permit, error) {
	if n <= 0 || ctx == nil || ctx.Err() != nil {
		return c.unusual(ctx, op, n)
	}
	if c.monitor.SkipsBegin() && c.take(n) {
		return c.monitor.Granted(&c.issuer, n), nil
	}
	watch := c.monitor.BeginTry(ctx, n)
	if mayWait {
		watch = c.monitor.Begin(ctx, n)
	}
	var deadline int64
	limit := c.maxWait()
	if limit > 0 && mayWait {
		deadline = now() + int64(limit)
	}
	queued, err := c.enter(ctx, n, mayWait, &watch, limit)
	if err == nil && c.q.under != nil {
		return c.acquireUnder(ctx, op, n, mayWait, queued, deadline, &watch)
	}
	return c.conclude(op, n, &watch, err)
}

// enter takes n permits of the queue, and waits for them if it may. It reports whether the
// caller was queued.
func (c *class) enter(ctx context.Context, n int64, mayWait bool, watch *sema.Wait, limit time.Duration) (queued bool, err error) {
	q := c.q
	q.lock()
	w := &waiter{class: c, n: n, level: c.share.Tier}
	err = c.tryLocked(w)
	if err == sema.ErrFull && mayWait && c.monitor != nil {
		if _, ok := c.roomLocked(w); ok {
			q.unlock()
			watch.Queued() // before the caller joins the queue: observers may be slow
			if ctx.Err() != nil {
				return false, cancelled{context.Cause(ctx)}
			}
			q.lock()
			w = &waiter{class: c, n: n, level: c.share.Tier}
			err = c.tryLocked(w)
		}
	}
	if err == sema.ErrFull && mayWait {
		err = c.enqueueLocked(w)
	}
	if err != nil {
		c.countLocked(err, false)
		q.unlock()
		return false, err
	}
	queued = w.queued
	q.unlock()
	if queued {
		err = w.park(ctx, limit)
	}
	return queued, err
}

// conclude reports a decision and returns the permit or the error of a caller.
func (c *class) conclude(op string, n int64, watch *sema.Wait, err error) (sema.Permit, error) {
	if err == nil {
		return watch.Granted(&c.issuer), nil
	}
	if c, ok := err.(cancelled); ok {
		return sema.Permit{}, watch.Failed(c.cause)
	}
	return sema.Permit{}, watch.Failed(c.fault(op, n, err))
}

// cancelled is the result of a call whose context has ended. Its cause may be any error, a
// sentinel of package sema too.
type cancelled struct{ cause error }

func (c cancelled) Error() string { return c.cause.Error() }

// unusual handles calls that are decided without the queue.
func (c *class) unusual(ctx context.Context, op string, n int64) (sema.Permit, error) {
	var err error
	switch {
	case ctx == nil:
		err = c.fault(op, n, errNilContext)
	case n < 0:
		err = c.fault(op, n, errNegative)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default: // weight 0 is granted unless the queue rejects all
		c.q.mu.Lock()
		err = c.q.phaseErrorLocked()
		c.q.mu.Unlock()
		if err == nil {
			return sema.Permit{}, nil
		}
		c.count(err)
		err = c.fault(op, n, err)
	}
	watch := c.monitor.BeginTry(ctx, n)
	return sema.Permit{}, watch.Failed(err)
}

func (q *Queue) phaseErrorLocked() error {
	switch q.phase {
	case draining:
		return sema.ErrDraining
	case closed:
		return sema.ErrClosed
	}
	return nil
}

func (c *class) count(err error) {
	c.q.mu.Lock()
	c.countLocked(err, false)
	c.q.mu.Unlock()
}

// countLocked counts a call that failed.
func (c *class) countLocked(err error, queued bool) {
	if _, ok := err.(cancelled); ok {
		err = context.Canceled
	}
	c.counts.Failed(err, queued)
	c.q.counts.Failed(err, queued)
}

// A detailed error is a sentinel with facts.
type detailed struct {
	sentinel error
	detail   string
}

func (d *detailed) Error() string { return d.sentinel.Error() + ": " + d.detail }
func (d *detailed) Unwrap() error { return d.sentinel }

var (
	errNilContext = &detailed{sema.ErrInvalid, "nil context"}
	errNegative   = &detailed{sema.ErrInvalid, "negative weight"}
)

// ErrOverloaded is the error of waiters that the order [CoDel] sheds. It matches
// [sema.ErrFull] too.
var ErrOverloaded error = overloaded{}

type overloaded struct{}

func (overloaded) Error() string        { return "shed: the class is overloaded" }
func (overloaded) Is(target error) bool { return target == sema.ErrFull }
func (overloaded) Reason() string       { return "overloaded" }
func (overloaded) Hint() string {
	return "retry later, or raise the capacity or the share of the class"
}

// fault returns the error of a caller: the cause of its context as it is, and sentinels
// with the facts.
func (c *class) fault(op string, n int64, err error) error {
	detail := ""
	if d, ok := err.(*detailed); ok {
		err, detail = d.sentinel, d.detail
	}
	switch err {
	case sema.ErrFull, sema.ErrQueueFull, sema.ErrTooLarge, sema.ErrClosed, sema.ErrDraining, sema.ErrTimeout, sema.ErrInvalid, ErrOverloaded:
	default:
		return err
	}
	c.q.lock()
	defer c.q.unlock()
	st := c.q.statsLocked()
	fault := &sema.Error{Op: op, Name: c.q.settings.Name, Weight: n, Err: err, Detail: detail, Capacity: st.Capacity, InUse: st.InUse, Waiters: st.Waiters}
	if detail == "nil context" {
		return fault // with the hint of package sema
	}
	if text := c.describeLocked(err); fault.Detail == "" {
		fault.Detail = text
	} else {
		fault.Detail = text + ", " + detail
	}
	switch {
	case err == sema.ErrTooLarge && n <= st.Capacity:
		fault.Advice = "split the request, or raise the Max of the class"
	case errors.Is(err, sema.ErrFull):
		if after := c.expectedWaitLocked(n); after < math.MaxInt64 { // else never, as far as is known
			fault.After = after
		}
	}
	return fault
}

// describeLocked returns the state of the class for an error.
func (c *class) describeLocked(err error) string {
	st := c.detailsLocked()
	switch err {
	case sema.ErrTooLarge:
		if limit := c.limit.Load(); limit < sema.MaxCapacity {
			return fmt.Sprintf("class %q may use %d", c.name, limit)
		}
	case sema.ErrFull, sema.ErrQueueFull, sema.ErrTimeout:
		return fmt.Sprintf("class %q has %d of %d in use and %d waiting", c.name, st.InUse, st.Capacity, st.Waiters)
	}
	return fmt.Sprintf("class %q", c.name)
}
