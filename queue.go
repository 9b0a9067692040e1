package sema

import (
	"sync/atomic"
	"time"
)

// A line is the queue of a core: a doubly linked list through the waiters, so
// that joining and leaving at any place costs no allocation and no search.
// It is guarded by the core's mutex.
//
// It also arranges that many waiters with one context watch it together. A
// channel in a select is locked twice per wait, and the Done channel of a
// context that 64 workers share becomes the hottest lock of all (measured: a
// third of the time of a hand-off). So once the queue is long, a waiter whose
// context the watcher watches already becomes a follower: it waits for its
// token alone, and the watcher passes the end of the context on. When the
// watcher leaves the queue, a follower is notified to watch instead.
type queue struct {
	head, tail *waiter
	n          int         // waiters queued
	occupied   atomic.Bool // n > 0, for observers, which do without the mutex while no caller waits
	parked     int         // of these, how many cannot be served at this capacity

	watcher   *waiter // queued, watches its context for its followers
	followers int

	waits waitClock
}

// waitTime returns how long callers have been queued in all.
func (l *queue) waitTime() time.Duration {
	if l.n > 0 {
		l.waits.read(l.n)
	}
	return l.waits.total
}

// followFrom is the length from which waiters follow. Each change of watcher
// costs one extra wake-up per length of the queue, so short queues do without.
const followFrom = 8

// servable returns how many queued callers a release could serve.
func (l *queue) servable() int { return l.n - l.parked }

func (l *queue) pushBack(w *waiter) {
	w.prev, w.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = w
	} else {
		l.head = w
	}
	l.tail = w
	l.joined(w)
}

func (l *queue) pushFront(w *waiter) {
	w.prev, w.next = nil, l.head
	if l.head != nil {
		l.head.prev = w
	} else {
		l.tail = w
	}
	l.head = w
	l.joined(w)
}

func (l *queue) joined(w *waiter) {
	w.status = queued
	if w.parked {
		l.parked++
	}
	switch {
	case w.done == nil:
	case l.watcher == nil:
		l.watcher = w
	case l.watcher.done == w.done && l.n >= followFrom:
		w.follows = true
		l.followers++
	}
	l.waits.change(l.n, l.n+1)
	l.n++
	if l.n == 1 {
		l.occupied.Store(true)
	}
}

func (l *queue) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.tail = w.prev
	}
	w.next, w.prev = nil, nil
	w.status = pending
	l.waits.change(l.n, l.n-1)
	l.n--
	if l.n == 0 {
		l.occupied.Store(false)
	}
	if w.parked {
		l.parked--
	}
	if w.following() {
		l.followers--
	} else if l.watcher == w {
		l.watcher = l.elect()
	}
}

// elect notifies the follower that will be served last to watch the context.
func (l *queue) elect() *waiter {
	if l.followers == 0 {
		return nil
	}
	w := l.tail
	for !w.following() {
		w = w.prev
	}
	l.followers--
	w.promoted = true
	w.token <- watchDone
	return w
}

func (w *waiter) following() bool { return w.follows && !w.promoted }

func (l *queue) setParked(w *waiter, parked bool) {
	if w.parked == parked {
		return
	}
	w.parked = parked
	if parked {
		l.parked++
	} else {
		l.parked--
	}
}
