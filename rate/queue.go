package rate

import (
	"context"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/list"
)

// A queue is the callers that wait, in order of arrival. The first one has a timer for when
// its permits have returned. The mutex of the gate guards it.
type queue struct {
	list.List[*waiter]
	weight int64 // of all waiters
}

// A waiter is one caller in the queue. When id or err is set it is decided, and no longer
// in the queue.
type waiter struct {
	node list.Node[*waiter]
	n    int64
	id   uint64
	err  error
	wake chan struct{} // buffered; receives when it is decided, or has become the first
}

func (q *queue) push(w *waiter) {
	w.node.Of = w
	q.PushBack(&w.node)
	q.weight += w.n
}

func (q *queue) remove(w *waiter) {
	q.Remove(&w.node)
	q.weight -= w.n
}

// first returns the waiter that is served next, or nil.
func (q *queue) first() *waiter {
	if node := q.First(); node != nil {
		return node.Of
	}
	return nil
}

func (w *waiter) decided() bool { return w.id != 0 || w.err != nil }

func (w *waiter) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// serveLocked grants permits to the first waiters. The one that is first then is woken, to
// set its timer anew.
func (g *Gate) serveLocked() {
	at := g.clock.read()
	for w := g.queue.first(); w != nil; w = g.queue.first() {
		if w.n > g.bucket.free || at < g.paused {
			w.notify()
			return
		}
		g.removeLocked(w)
		w.id = g.bucket.take(w.n)
		w.notify()
	}
}

// rejectLocked ends the waits of some callers with an error.
func (g *Gate) rejectLocked(why error, rejects func(*waiter) bool) {
	for w := range g.queue.All {
		if rejects(w) {
			g.removeLocked(w)
			g.counts.Failed(why, true)
			w.err = why
			w.notify()
		}
	}
}

func (g *Gate) removeLocked(w *waiter) {
	g.waits.change(g.queue.Len(), g.clock.read())
	g.queue.remove(w)
}

// waitLocked queues a caller until it is decided, its context ends or MaxWait has passed.
// It unlocks the mutex.
func (g *Gate) waitLocked(ctx context.Context, n int64) (id uint64, err error) {
	w := &waiter{n: n, wake: make(chan struct{}, 1)}
	g.waits.change(g.queue.Len(), g.clock.read())
	g.queue.push(w)
	g.counts.Waited++
	if g.queue.first() == w {
		w.notify()
	}
	g.mu.Unlock()
	var limit <-chan time.Time
	if g.settings.MaxWait > 0 {
		timer := time.NewTimer(g.settings.MaxWait)
		defer timer.Stop()
		limit = timer.C
	}
	due := time.NewTimer(time.Hour) // for the first waiter; it polls at once, and sets the time
	defer due.Stop()
	for {
		select {
		case <-w.wake:
		case <-due.C:
		case <-limit:
			err = sema.ErrTimeout
		case <-ctx.Done():
		}
		if ctx.Err() != nil { // also if the wait was decided in the same instant
			err = cancelled{context.Cause(ctx)}
		}
		if err != nil {
			return g.giveUp(w, err)
		}
		if left, ok := g.poll(w); ok {
			return w.id, w.err
		} else if left > 0 {
			due.Reset(left)
		}
	}
}

// poll serves the queue if w is its first waiter. It reports whether w is decided, and
// counts its grant, or else for how long to wait; 0: until it is woken.
func (g *Gate) poll(w *waiter) (left time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !w.decided() && g.queue.first() == w {
		at := g.advanceLocked()
		if left = max(g.bucket.until(w.n), time.Duration(g.paused-at)); left > 0 {
			return left, false
		}
		g.serveLocked()
	}
	if w.id != 0 {
		g.counts.Acquired++
	}
	return 0, w.decided()
}

// giveUp removes a waiter whose context has ended or whose MaxWait has passed. What it was
// granted meanwhile is refunded, or kept if only MaxWait has passed. A waiter that was
// rejected meanwhile keeps that error.
func (g *Gate) giveUp(w *waiter, why error) (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case w.err != nil:
		return 0, w.err // counted when it was rejected
	case w.id != 0 && why == sema.ErrTimeout:
		g.counts.Acquired++
		return w.id, nil // granted in time
	case w.id != 0:
		g.advanceLocked()
		g.bucket.refund(w.id, w.n)
	default:
		g.removeLocked(w)
	}
	g.serveLocked()
	if why == sema.ErrTimeout {
		g.counts.TimedOut++
	} else { // whatever the cause, which may be a sentinel too
		g.counts.Cancelled++
	}
	return 0, why
}
