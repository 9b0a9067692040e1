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
type queue struct {
	mu      sync.Mutex
	waiters list.List[*waiter]
	length  atomic.Int32 // number of waiters; may be read without mu
	driven  bool         // the driver runs
}

// A waiter is one acquire in the queue. The goroutine that removes it from the queue,
// under the queue's mutex, decides its result.
type waiter struct {
	sem    *Semaphore
	n      int64
	ticket uint64
	ended  chan result // buffered
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
	var expired <-chan time.Time
	if s.maxWait > 0 {
		timer := time.NewTimer(s.maxWait)
		defer timer.Stop()
		expired = timer.C
	}
	var r result
	select {
	case r = <-w.ended:
	case <-ctx.Done():
		if !f.dequeue(w) {
			r = <-w.ended
		}
	case <-expired:
		if f.dequeue(w) {
			r.err = s.newError("acquire", n, sema.ErrTimeout, s.maxWait.String())
		} else {
			r = <-w.ended
		}
	}
	if ctx.Err() == nil {
		return r.runs, r.err
	}
	if r.runs != nil { // a done context never acquires
		f.free(r.runs)
	}
	return nil, context.Cause(ctx)
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
	case !q.driven:
		q.driven = true
		f.refs.Add(1)
		if w.sem.monitor == nil {
			go f.drive()
		} else { // otherwise the audit would take the driver for a goroutine that may release the caller's permits, and miss a deadlock
			go func() { go f.drive() }()
		}
	case q.first() == w: // the driver sleeps on behalf of a waiter that has left
		f.wakeDriver()
	}
	return true, nil
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
			q.remove(w)
			w.ended <- result{err: err}
		}
	}
	f.publishFirstLocked()
	q.mu.Unlock()
	f.wakeFirst()
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

// drive claims slots for the first waiter of this process, until no waiter is left.
func (f *file) drive() {
	defer f.unref()
	holders := watch{f: f}
	defer holders.stop()
	var known config
	for {
		w, seen := f.leader()
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
		switch f.attempt(w) {
		case behind:
			holders.stop()
			f.sleep(seen, f.timing.poll)
		case unserved:
			holders.sleep(w, seen)
		}
	}
}

// leader publishes the first waiter to the host and returns it, or nil if there is
// none. It reads seen, the value of the futex to sleep on, before anything else.
func (f *file) leader() (w *waiter, seen uint32) {
	q := &f.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.first() == nil {
		q.driven = false
		f.publishFirstLocked()
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

// attempt tries to serve w.
func (f *file) attempt(w *waiter) attemptResult {
	at, ticket, err := f.firstLive()
	if err != nil {
		return f.conclude(w, result{err: err})
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
	q.remove(w)
	w.ended <- result{runs: slices.Clone(runs)} // the lease of runs is reused
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
