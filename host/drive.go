package host

import (
	"context"
	"slices"
	"time"
)

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
		f.wakeOther() // it may have found slots held that this claim had for a moment
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
// hand-off saves the wake-up of a thread.
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
