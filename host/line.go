package host

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/list"
)

// pollWithoutPlace is for a process that nobody can wake.
const pollWithoutPlace = 5 * time.Millisecond

// A line is who waits in this process, in order. One goroutine, the driver,
// waits in the host's line on behalf of the first of them, so that a process
// blocks one thread however many of its goroutines wait.
type line struct {
	mu      sync.Mutex
	waiters list.List[*waiter]
	length  atomic.Int32 // how many, for who has not mu
	driven  bool
}

// A waiter is one acquire in line. Whoever takes it out of the line, under the
// line's mutex, decides how it ends.
type waiter struct {
	sem    *Semaphore
	n      int64
	ticket uint64
	ended  chan outcome // buffered
	node   list.Node[*waiter]
}

type outcome struct {
	runs []run
	err  error
}

func (l *line) append(w *waiter) {
	w.node.Of = w
	l.waiters.PushBack(&w.node)
	l.length.Add(1)
}

func (l *line) remove(w *waiter) {
	l.waiters.Remove(&w.node)
	l.length.Add(-1)
}

func (l *line) first() *waiter {
	if first := l.waiters.First(); first != nil {
		return first.Of
	}
	return nil
}

// wait stands in line until slots are had or the context ends.
func (f *file) wait(ctx context.Context, s *Semaphore, n int64) ([]run, error) {
	w := &waiter{sem: s, n: n, ended: make(chan outcome, 1)}
	if err := f.enqueue(w); err != nil {
		return nil, err
	}
	var o outcome
	select {
	case o = <-w.ended:
		if ctx.Err() == nil || o.runs == nil {
			return o.runs, o.err
		}
	case <-ctx.Done():
		if !f.dequeue(w) {
			o = <-w.ended
		}
	}
	if o.runs != nil { // had, but too late
		f.free(o.runs)
	}
	return nil, context.Cause(ctx)
}

func (f *file) enqueue(w *waiter) error {
	l := &f.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.sem.closed.Load() {
		return w.sem.fault("acquire", w.n, sema.ErrClosed, "")
	}
	if !f.touch(func() { w.ticket = f.head.tickets.Add(1) }) {
		return f.wrap("acquire", ErrDamaged)
	}
	l.append(w)
	f.showFirst()
	switch {
	case !l.driven:
		l.driven = true
		f.refs.Add(1)
		go f.drive()
	case l.first() == w: // the driver is asleep for somebody who left
		f.rouse()
	}
	return nil
}

// dequeue takes out a waiter whose context ended, and tells who is next if it
// was in the way.
func (f *file) dequeue(w *waiter) bool {
	l := &f.line
	l.mu.Lock()
	if !w.node.In() {
		l.mu.Unlock()
		return false
	}
	wasFirst := l.first() == w
	l.remove(w)
	f.showFirst()
	l.mu.Unlock()
	if wasFirst {
		f.wakeFirst()
	}
	return true
}

// expelTooLarge ends the waiters who ask for more than there can ever be.
func (f *file) expelTooLarge(c config) {
	f.expel(func(w *waiter) error {
		if capacity := c.capacity(); capacity == 0 || w.n <= capacity {
			return nil
		}
		return w.sem.fault("acquire", w.n, sema.ErrTooLarge, "the capacity was lowered")
	})
}

// expel ends the waiters for whom which has an error.
func (f *file) expel(which func(*waiter) error) {
	l := &f.line
	l.mu.Lock()
	for w := range l.waiters.All {
		if err := which(w); err != nil {
			l.remove(w)
			w.ended <- outcome{err: err}
		}
	}
	f.showFirst()
	l.mu.Unlock()
	f.wakeFirst()
}

// showFirst brings this process's place up to date with its line.
// The line's mutex is held.
func (f *file) showFirst() {
	own := int(f.own.Load())
	f.touch(func() {
		switch {
		case own == noPlace:
		case f.line.first() == nil:
			f.stepOut(own)
		default:
			f.standAt(own, f.line.first(), f.line.length.Load())
		}
	})
}

// drive gets slots for whoever is first in this process's line, until nobody
// is left.
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
			f.expelTooLarge(c)
			continue
		}
		if !f.attempt(w) {
			f.sleep(seen)
		}
	}
}

// leader is the waiter to serve, shown to the host, and the word to sleep on,
// from before anything was looked at.
func (f *file) leader() (w *waiter, seen uint32) {
	l := &f.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first() == nil {
		l.driven = false
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
	return l.first(), seen
}

// sleep is until somebody nudges this process, or it is time to look.
func (f *file) sleep(seen uint32) {
	if own := f.own.Load(); own != noPlace {
		f.touch(func() { waitWord(&f.places[own].word, seen, f.pace.poll) })
		return
	}
	select {
	case <-f.roused:
	case <-time.After(pollWithoutPlace):
	}
}

// rouse has this process's driver look.
func (f *file) rouse() {
	if own := f.own.Load(); own != noPlace {
		f.touch(func() { f.nudge(int(own)) })
		return
	}
	select {
	case f.roused <- struct{}{}:
	default:
	}
}

// attempt tries to serve w, and reports whether there is reason to go on at
// once.
func (f *file) attempt(w *waiter) bool {
	at, ticket, err := f.living()
	if err != nil {
		return f.conclude(w, outcome{err: err})
	}
	if at != noPlace && ticket < w.ticket {
		return false
	}
	if err := f.checkPath(time.Now()); err != nil {
		return f.conclude(w, outcome{err: err})
	}
	runs, v, err := f.claim(context.Background(), w.n)
	switch {
	case err != nil:
		return f.conclude(w, outcome{err: err})
	case v == tooLarge: // since before it stood in line
		f.expelTooLarge(f.config())
		return true
	case v == short:
		return false
	}
	f.conclude(w, outcome{runs: runs})
	if f.hinted() {
		f.wakeFirst()
	}
	return true
}

// conclude ends w, unless it has left: what it was to have is free then.
func (f *file) conclude(w *waiter, o outcome) bool {
	l := &f.line
	l.mu.Lock()
	left := !w.node.In()
	o.err = f.wrap("acquire", o.err)
	if !left {
		l.remove(w)
		w.ended <- o
		f.showFirst()
	}
	l.mu.Unlock()
	switch {
	case left && o.runs != nil:
		f.free(o.runs)
	case o.err != nil:
		f.wakeFirst()
	}
	return true
}

// handOver gives runs that are about to be freed to the first waiter of this
// process, if it is the host's first and wants just as much. This spares a
// thread's sleep and two system calls.
func (f *file) handOver(runs []run) bool {
	l := &f.line
	if l.length.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.first()
	if w == nil || w.n != weightOf(runs) || f.config()&unsettled != 0 {
		return false
	}
	at, ticket := noPlace, uint64(0)
	if !f.touch(func() { at, ticket = f.first() }) || at != int(f.own.Load()) || ticket != w.ticket {
		return false
	}
	l.remove(w)
	w.ended <- outcome{runs: runs}
	f.showFirst()
	return true
}

// free gives slots back and tells who is next.
func (f *file) free(runs []run) {
	if !f.handOver(runs) {
		f.unlockSlots(runs)
	} else if !f.hinted() {
		return
	}
	f.wakeFirst()
}
