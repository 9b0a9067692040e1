package sema

import (
	"sync/atomic"

	"github.com/sema-go/sema/internal/waitclock"
)

// A queue is the list of a core's waiters. It is a doubly linked list through the
// waiters, so that joining and leaving at any position needs no allocation and no
// search. The core's mutex guards it.
//
// One waiter watches a context for all waiters that share it. A select locks each of
// its channels twice per wait. So the Done channel of a context that 64 workers share
// becomes the most contended lock (measured: a third of the time of a hand-off).
// Once the queue is long, a waiter whose context the watcher already
// watches becomes a follower. A follower waits for its token only, and the watcher
// passes the end of the context on. When the watcher leaves the queue, a follower
// is notified to watch instead.
type queue struct {
	head, tail *waiter
	n          int         // waiters queued
	occupied   atomic.Bool // n > 0; lets observers skip the mutex while no caller waits
	parked     int         // waiters that cannot be served at this capacity

	watcher   *waiter // queued; watches its context for its followers
	followers int

	waits waitclock.Clock
}

// followThreshold is the queue length from which waiters become followers. A change
// of watcher costs an extra wake-up. The follower served last becomes the watcher, so
// that happens about once per queue length of grants. Short queues have no followers.
const followThreshold = 8

// servable returns the number of waiters that a release could serve.
func (q *queue) servable() int { return q.n - q.parked }

func (q *queue) pushBack(w *waiter) {
	w.prev, w.next = q.tail, nil
	if q.tail != nil {
		q.tail.next = w
	} else {
		q.head = w
	}
	q.tail = w
	q.joined(w)
}

func (q *queue) pushFront(w *waiter) {
	w.prev, w.next = nil, q.head
	if q.head != nil {
		q.head.prev = w
	} else {
		q.tail = w
	}
	q.head = w
	q.joined(w)
}

func (q *queue) joined(w *waiter) {
	w.status = queued
	if w.parked {
		q.parked++
	}
	switch {
	case w.done == nil:
	case q.watcher == nil:
		q.watcher = w
	case q.watcher.done == w.done && q.n >= followThreshold:
		w.follows = true
		q.followers++
	}
	q.waits.Change(q.n, q.n+1)
	q.n++
	if q.n == 1 {
		q.occupied.Store(true)
	}
}

func (q *queue) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.tail = w.prev
	}
	w.next, w.prev = nil, nil
	w.status = pending
	q.waits.Change(q.n, q.n-1)
	q.n--
	if q.n == 0 {
		q.occupied.Store(false)
	}
	if w.parked {
		q.parked--
	}
	if w.following() {
		q.followers--
	} else if q.watcher == w {
		q.watcher = q.promoteFollower()
	}
}

// promoteFollower notifies the follower that will be served last to watch the
// context, and returns it. It returns nil if there are no followers.
func (q *queue) promoteFollower() *waiter {
	if q.followers == 0 {
		return nil
	}
	w := q.tail
	for !w.following() {
		w = w.prev
	}
	q.followers--
	w.promoted = true
	w.token <- watchDone
	return w
}

func (w *waiter) following() bool { return w.follows && !w.promoted }

func (q *queue) setParked(w *waiter, parked bool) {
	if w.parked == parked {
		return
	}
	w.parked = parked
	if parked {
		q.parked++
	} else {
		q.parked--
	}
}
