package host

import (
	"context"
	"slices"
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

// drive claims slots for the first waiter of this process, until no waiter is left. If
// only is not nil, it ends when that waiter, which was the first, has left the queue.
func (f *file) drive(only *waiter) {
	var known config
	fresh := only != nil
	for {
		w, seen := f.leader(only)
		if w == nil {
			return
		}
		c := f.config()
		if f.damaged.Load() {
			f.rejectWaiters(func(*waiter) error { return f.wrap("acquire", ErrDamaged) })
			continue
		}
		if c != known {
			known = c
			f.rejectUnservable(c)
			continue
		}
		switch f.attempt(w, fresh) {
		case behind:
			f.queue.watch.stop()
			f.sleep(seen, f.timing.poll)
		case unserved:
			f.queue.watch.sleep(w, seen)
		}
		fresh = false
	}
}

// leader publishes the first waiter to the host and returns it. It reads seen, the value
// of the futex to sleep on, before anything else. It returns nil if the caller no longer
// drives: no waiter is left, or only is not nil and has left.
func (f *file) leader(only *waiter) (w *waiter, seen uint32) {
	q := &f.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	switch first := q.first(); {
	case first == nil:
		q.watch.stop() // before the next driver uses it
		q.driven = false
		f.publishFirstLocked()
		return nil, 0
	case only != nil && first != only:
		q.watch.stop()
		f.startDriver(first)
		return nil, 0
	}
	f.touch(func() {
		if own := f.takePlace(); own != noPlace {
			p := &f.places[own]
			seen = p.word.Load()
			p.beat.Store(int64(clock()))
		}
	})
	f.publishFirstLocked()
	return q.first(), seen
}

// sleep waits until another process wakes this one, or d elapses. It reports whether it
// was woken.
func (f *file) sleep(seen uint32, d time.Duration) (woken bool) {
	if own := f.own.Load(); own != noPlace {
		f.touch(func() {
			word := &f.places[own].word
			waitWord(word, seen, d)
			woken = word.Load() != seen
		})
		return woken
	}
	select {
	case <-f.woken:
		return true
	case <-time.After(min(d, pollWithoutPlace)):
		return false
	}
}

// wakeDriver wakes this process's driver.
func (f *file) wakeDriver() {
	if own := f.own.Load(); own != noPlace {
		f.touch(func() { f.wake(int(own)) })
		return
	}
	select {
	case f.woken <- struct{}{}:
	default:
	}
}

// An attemptResult is the result of an attempt to serve a waiter.
type attemptResult uint8

const (
	decided  attemptResult = iota // it has a result, or the next attempt will differ
	behind                        // another process is first
	unserved                      // it is first, and too few slots are free
)

// attempt tries to serve w. If fresh is true, busy has just checked that the first waiter
// of the host is alive.
func (f *file) attempt(w *waiter, fresh bool) attemptResult {
	at, ticket := noPlace, uint64(0)
	if fresh {
		f.touch(func() { at, ticket = f.first() })
	}
	if at == noPlace || ticket >= w.ticket {
		var err error
		if at, ticket, err = f.firstLive(); err != nil {
			return f.conclude(w, result{err: err})
		}
	}
	if at != noPlace && ticket < w.ticket {
		return behind
	}
	if err := f.checkPath(time.Now()); err != nil {
		return f.conclude(w, result{err: err})
	}
	runs, got, err := f.claim(context.Background(), w.n)
	switch {
	case err != nil:
		return f.conclude(w, result{err: err})
	case got == tooLarge, got == draining: // the config had changed before w was queued
		f.rejectUnservable(f.config())
		return decided
	case got == short:
		return unserved
	}
	f.conclude(w, result{runs: runs})
	if f.bitmapHasFree() {
		f.wakeFirst()
	}
	return decided
}

// conclude ends w with a result. If w has left the queue, conclude frees its slots. It
// always returns decided.
func (f *file) conclude(w *waiter, r result) attemptResult {
	q := &f.queue
	q.mu.Lock()
	left := !w.node.In()
	r.err = f.wrap("acquire", r.err)
	if !left {
		q.remove(w)
		w.ended <- r
		f.publishFirstLocked()
	}
	q.mu.Unlock()
	switch {
	case left && r.runs != nil:
		f.free(r.runs)
	case r.err != nil:
		f.wakeFirst()
	}
	return decided
}

// handOff passes runs that are about to be freed to the first waiter of this process,
// and reports whether it did. The waiter must be the first of the host and ask for
// exactly as many slots. It does nothing while the config is unsettled or draining. A
// hand-off saves a thread wake-up and two system calls.
func (f *file) handOff(runs []run) bool {
	q := &f.queue
	if q.length.Load() == 0 {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.first()
	if w == nil || w.n != weightOf(runs) || f.config()&(unsettled|drainingFlag) != 0 {
		return false
	}
	at, ticket := noPlace, uint64(0)
	if !f.touch(func() { at, ticket = f.first() }) || at != int(f.own.Load()) || ticket != w.ticket {
		return false
	}
	f.endLocked(w, result{runs: slices.Clone(runs)}) // the lease of runs is reused
	f.publishFirstLocked()
	return true
}

// free frees slots and wakes the process to serve next.
func (f *file) free(runs []run) {
	if !f.handOff(runs) {
		f.unlockSlots(runs)
	} else if !f.bitmapHasFree() {
		return
	}
	f.wakeFirst()
}
