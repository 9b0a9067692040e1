package host

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/list"
)

// pollWithoutPlace is the poll interval of a process without a place, which no other
// process can wake.
const pollWithoutPlace = 5 * time.Millisecond

// A queue contains the waiters of this process, in order. One goroutine, the driver,
// waits in the queue of the host on behalf of the first waiter. So a process blocks one
// thread, however many of its goroutines wait.
//
// The driver is a goroutine of its own or, if no permit is held in this process, the
// first waiter itself. Then a hand-off between processes needs no switch between
// goroutines. If a permit is held here, its release may serve the first waiter, and
// waking a goroutine costs less than waking a thread.
type queue struct {
	mu      sync.Mutex
	waiters list.List[*waiter]
	length  atomic.Int32 // number of waiters; may be read without mu
	driven  bool         // there is a driver
	watch   watch        // used by the driver alone
}

// A waiter is one acquire in the queue. The goroutine that removes it from the queue,
// under the queue's mutex, decides its result.
type waiter struct {
	sem    *Semaphore
	n      int64
	ticket uint64
	ended  chan result // buffered
	drives bool        // its own goroutine is the driver until it leaves the queue
	node   list.Node[*waiter]
}

// A result is the result of a wait.
type result struct {
	runs []run
	err  error
}

func (q *queue) append(w *waiter) {
	w.node.Of = w
	q.waiters.PushBack(&w.node)
	q.length.Add(1)
}

func (q *queue) remove(w *waiter) {
	q.waiters.Remove(&w.node)
	q.length.Add(-1)
}

func (q *queue) first() *waiter {
	if first := q.waiters.First(); first != nil {
		return first.Of
	}
	return nil
}

// wait queues the caller until it gets slots, its context ends or MaxWait elapses.
func (f *file) wait(ctx context.Context, s *Semaphore, n int64) ([]run, error) {
	w := &waiter{sem: s, n: n, ended: make(chan result, 1)}
	if err := f.enqueue(w); err != nil {
		return nil, err
	}
	var r result
	if w.drives {
		r = f.driveFor(ctx, w)
	} else {
		r = f.await(ctx, w)
	}
	if ctx.Err() == nil {
		return r.runs, r.err
	}
	if r.runs != nil { // a done context never acquires
		f.free(r.runs)
	}
	return nil, context.Cause(ctx)
}

// await waits for the result of w, which another goroutine finds.
func (f *file) await(ctx context.Context, w *waiter) result {
	var expired <-chan time.Time
	if w.sem.maxWait > 0 {
		timer := time.NewTimer(w.sem.maxWait)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case r := <-w.ended:
		return r
	case <-ctx.Done():
		if f.dequeue(w) {
			return result{}
		}
	case <-expired:
		if f.dequeue(w) {
			return w.timedOut()
		}
	}
	return <-w.ended
}

func (w *waiter) timedOut() result {
	return result{err: w.sem.newError("acquire", w.n, sema.ErrTimeout, w.sem.maxWait.String())}
}

// driveFor drives the queue until w has a result. The end of the context, or of MaxWait,
// wakes it.
func (f *file) driveFor(ctx context.Context, w *waiter) result {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { f.abandon(w, result{}) })
		defer stop()
	}
	if w.sem.maxWait > 0 {
		timer := time.AfterFunc(w.sem.maxWait, func() { f.abandon(w, w.timedOut()) })
		defer timer.Stop()
	}
	f.drive(w)
	return <-w.ended
}

// abandon ends the wait of w with a result, if it is still queued. It may be called after
// the end of the wait.
func (f *file) abandon(w *waiter, r result) {
	if !f.ref() {
		return
	}
	defer f.unref()
	if f.dequeue(w) {
		w.ended <- r
		f.wakeDriver()
	}
}

func (f *file) enqueue(w *waiter) error {
	q := &f.queue
	q.mu.Lock()
	admitted, err := f.enqueueLocked(w)
	q.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !admitted:
		return w.sem.queueFull(w.n)
	}
	return nil
}

func (f *file) enqueueLocked(w *waiter) (admitted bool, err error) {
	q := &f.queue
	if w.sem.closed.Load() {
		return false, w.sem.newError("acquire", w.n, sema.ErrClosed, "")
	}
	admitted = true
	whole := f.touch(func() {
		w.ticket = f.head.tickets.Add(1)
		if bound := storedWaiters(f.head.maxWaiters.Load()); bound != 0 {
			admitted, err = f.admitLocked(w.ticket, bound)
		}
	})
	switch {
	case !whole:
		return false, f.wrap("acquire", ErrDamaged)
	case err != nil || !admitted:
		f.publishFirstLocked()
		return false, f.wrap("acquire", err)
	}
	q.append(w)
	f.publishFirstLocked()
	switch {
	case !q.driven && canWake && !f.holdsAny():
		q.driven, w.drives = true, true
	case !q.driven:
		q.driven = true
		f.startDriver(w)
	case q.first() == w: // the driver sleeps on behalf of a waiter that has left
		f.wakeDriver()
	}
	return true, nil
}

// startDriver starts a goroutine that drives the queue, whose first waiter is w.
func (f *file) startDriver(w *waiter) {
	f.refs.Add(1) // succeeds: the caller has a reference
	drive := func() { defer f.unref(); f.drive(nil) }
	if w.sem.monitor == nil {
		go drive()
	} else { // otherwise the audit would take the driver for a goroutine that may release the caller's permits, and miss a deadlock
		go func() { go drive() }()
	}
}

// holdsAny reports whether a permit is held in this process.
func (f *file) holdsAny() bool {
	reach := uint32(0)
	f.touch(func() { reach = min(f.head.reach.Load(), maxCapacity) })
	for word := range (reach + wordBits - 1) / wordBits {
		if f.mine[word].Load() != 0 {
			return true
		}
	}
	return false
}

// dequeue removes w from the queue and reports whether it was still queued. If w was
// the first waiter, dequeue wakes the process to serve next.
func (f *file) dequeue(w *waiter) bool {
	q := &f.queue
	q.mu.Lock()
	if !w.node.In() {
		q.mu.Unlock()
		return false
	}
	wasFirst := q.first() == w
	q.remove(w)
	f.publishFirstLocked()
	q.mu.Unlock()
	if wasFirst {
		f.wakeFirst()
	}
	return true
}

// rejectUnservable ends the waiters that can never be served while the config is c.
func (f *file) rejectUnservable(c config) {
	f.rejectWaiters(func(w *waiter) error {
		switch c.rejects(w.n) {
		case tooLarge:
			return w.sem.newError("acquire", w.n, sema.ErrTooLarge, "the capacity was lowered")
		case draining:
			return w.sem.newError("acquire", w.n, sema.ErrDraining, "")
		}
		return nil
	})
}

// rejectWaiters ends the waiters for which reject returns an error.
func (f *file) rejectWaiters(reject func(*waiter) error) {
	q := &f.queue
	q.mu.Lock()
	for w := range q.waiters.All {
		if err := reject(w); err != nil {
			f.endLocked(w, result{err: err})
		}
	}
	f.publishFirstLocked()
	q.mu.Unlock()
	f.wakeFirst()
}

// endLocked removes w from the queue, and ends it with a result. The caller holds the
// queue's mutex.
func (f *file) endLocked(w *waiter, r result) {
	f.queue.remove(w)
	w.ended <- r
	if w.drives {
		f.wakeDriver()
	}
}

// publishFirstLocked updates this process's place from its queue. The caller holds the
// queue's mutex.
func (f *file) publishFirstLocked() {
	own := int(f.own.Load())
	f.touch(func() {
		switch {
		case own == noPlace:
		case f.queue.first() == nil:
			f.clearAt(own)
		default:
			f.publishAt(own, f.queue.first(), f.queue.length.Load())
		}
	})
}
