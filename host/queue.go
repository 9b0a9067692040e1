package host

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/list"
)

// pollWithoutPlace is the poll interval of a process that no other can wake.
const pollWithoutPlace = 5 * time.Millisecond

// A queue has the waiters of this process, in order. One goroutine, the driver,
// waits in the queue of the host on behalf of the first of them, so that a process
// blocks one thread however many of its goroutines wait.
type queue struct {
	mu      sync.Mutex
	waiters list.List[*waiter]
	length  atomic.Int32 // number of waiters, to be read without mu
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

// A result is how a wait ended.
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

// wait queues the caller until it has slots, its context ends or MaxWait passes.
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
			r.err = s.fault("acquire", n, sema.ErrTimeout, s.maxWait.String())
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
		return false, w.sem.fault("acquire", w.n, sema.ErrClosed, "")
	}
	admitted = true
	whole := f.touch(func() {
		w.ticket = f.head.tickets.Add(1)
		if bound := storedWaiters(f.head.maxWaiters.Load()); bound != 0 {
			admitted, err = f.admit(w.ticket, bound)
		}
	})
	switch {
	case !whole:
		return false, f.wrap("acquire", ErrDamaged)
	case err != nil || !admitted:
		f.showFirst()
		return false, f.wrap("acquire", err)
	}
	q.append(w)
	f.showFirst()
	switch {
	case !q.driven:
		q.driven = true
		f.refs.Add(1)
		if w.sem.monitor == nil {
			go f.drive()
		} else { // or a goroutine in a deadlock would seem to have started one that may release its permits
			go func() { go f.drive() }()
		}
	case q.first() == w: // the driver sleeps for a waiter that has left
		f.wakeDriver()
	}
	return true, nil
}

// dequeue removes a waiter whose wait is over, and wakes the next one if the waiter
// was the first.
func (f *file) dequeue(w *waiter) bool {
	q := &f.queue
	q.mu.Lock()
	if !w.node.In() {
		q.mu.Unlock()
		return false
	}
	wasFirst := q.first() == w
	q.remove(w)
	f.showFirst()
	q.mu.Unlock()
	if wasFirst {
		f.wakeFirst()
	}
	return true
}

// expelRejected ends the waiters that can not be served while c stands.
func (f *file) expelRejected(c config) {
	f.expel(func(w *waiter) error {
		switch c.rejects(w.n) {
		case tooLarge:
			return w.sem.fault("acquire", w.n, sema.ErrTooLarge, "the capacity was lowered")
		case draining:
			return w.sem.fault("acquire", w.n, sema.ErrDraining, "")
		}
		return nil
	})
}

// expel ends the waiters for which reject returns an error.
func (f *file) expel(reject func(*waiter) error) {
	q := &f.queue
	q.mu.Lock()
	for w := range q.waiters.All {
		if err := reject(w); err != nil {
			q.remove(w)
			w.ended <- result{err: err}
		}
	}
	f.showFirst()
	q.mu.Unlock()
	f.wakeFirst()
}

// showFirst brings this process's place up to date with its queue.
// The queue's mutex is held.
func (f *file) showFirst() {
	own := int(f.own.Load())
	f.touch(func() {
		switch {
		case own == noPlace:
		case f.queue.first() == nil:
			f.clearAt(own)
		default:
			f.showAt(own, f.queue.first(), f.queue.length.Load())
		}
	})
}

// drive gets slots for the first waiter of this process, until there is none.
func (f *file) drive() {
	defer f.unref()
	var known config
	for {
		w, seen := f.leader()
		if w == nil {
			return
		}
		c := f.config()
		if f.damaged.Load() {
			f.expel(func(*waiter) error { return f.wrap("acquire", ErrDamaged) })
			continue
		}
		if c != known {
			known = c
			f.expelRejected(c)
			continue
		}
		if !f.attempt(w) {
			f.sleep(seen)
		}
	}
}

// leader returns the waiter to serve, after publishing it to the host, and the value
// of the futex to sleep on, read before anything else.
func (f *file) leader() (w *waiter, seen uint32) {
	q := &f.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.first() == nil {
		q.driven = false
		f.showFirst()
		return nil, 0
	}
	f.touch(func() {
		if own := f.takePlace(); own != noPlace {
			p := &f.places[own]
			seen = p.word.Load()
			p.beat.Store(int64(clock()))
		}
	})
	f.showFirst()
	return q.first(), seen
}

// sleep waits until another process wakes this one, or it is time to poll.
func (f *file) sleep(seen uint32) {
	if own := f.own.Load(); own != noPlace {
		f.touch(func() { waitWord(&f.places[own].word, seen, f.pace.poll) })
		return
	}
	select {
	case <-f.woken:
	case <-time.After(pollWithoutPlace):
	}
}

// wakeDriver ends the sleep of this process's driver.
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

// attempt tries to serve w, and reports whether there is reason to continue at once.
func (f *file) attempt(w *waiter) bool {
	at, ticket, err := f.living()
	if err != nil {
		return f.conclude(w, result{err: err})
	}
	if at != noPlace && ticket < w.ticket {
		return false
	}
	if err := f.checkPath(time.Now()); err != nil {
		return f.conclude(w, result{err: err})
	}
	runs, got, err := f.claim(context.Background(), w.n)
	switch {
	case err != nil:
		return f.conclude(w, result{err: err})
	case got == tooLarge, got == draining: // since before it was queued
		f.expelRejected(f.config())
		return true
	case got == short:
		return false
	}
	f.conclude(w, result{runs: runs})
	if f.hinted() {
		f.wakeFirst()
	}
	return true
}

// conclude ends w, unless it has left: then what it was to have is freed.
func (f *file) conclude(w *waiter, r result) bool {
	q := &f.queue
	q.mu.Lock()
	left := !w.node.In()
	r.err = f.wrap("acquire", r.err)
	if !left {
		q.remove(w)
		w.ended <- r
		f.showFirst()
	}
	q.mu.Unlock()
	switch {
	case left && r.runs != nil:
		f.free(r.runs)
	case r.err != nil:
		f.wakeFirst()
	}
	return true
}

// handOver passes runs that are about to be freed to the first waiter of this
// process, if it is the first of the host and wants just as much. This spares a
// thread's sleep and two system calls.
func (f *file) handOver(runs []run) bool {
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
	w.ended <- result{runs: runs}
	f.showFirst()
	return true
}

// free frees slots and wakes the process to serve next.
func (f *file) free(runs []run) {
	if !f.handOver(runs) {
		f.unlockSlots(runs)
	} else if !f.hinted() {
		return
	}
	f.wakeFirst()
}
