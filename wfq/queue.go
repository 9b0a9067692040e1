package wfq

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/list"
	"github.com/sema-go/sema/internal/monotonic"
	"github.com/sema-go/sema/internal/spinlock"
)

// A Queue shares a capacity among classes. Create it with [New] or [Over]. It is safe for
// concurrent use.
type Queue struct {
	// word is the number of free permits while the queue is calm: no caller waits, and
	// nothing else needs the mutex. Then any goroutine changes it with a CAS. While the
	// queue is slow, word is slowFlag and the field free has the number.
	//
	//	calm ──lock: Swap(slowFlag)──▶ slow
	//	slow ──unlock: Store(free)───▶ calm, once no caller waits
	word atomic.Uint64

	settings settings
	under    sema.Gate     // set by Over
	monitor  *sema.Monitor // nil unless observed or diagnosed
	names    *names

	mu       sync.Mutex // guards what follows, and most of classes and waiters
	slow     bool
	now      int64 // when the critical section began, in ns
	skew     int64 // added to the clock, so that it never steps back by much
	capacity int64
	free     int64 // while slow: capacity − in use; negative after a shrink
	phase    phase
	fallback Share // of classes that were not set

	tiers     []*tier // the highest first
	backlog   list.List[*class]
	waiters   int
	arrivals  int64 // sum of waiter.since, so that WaitTime needs no loop over them
	busy      busyClock
	hold      meanHold // of all classes
	blocker   *class   // the one whose turn it is, if too little is free for it; else nil
	reserved  int64    // permits that stay free for it
	lingering list.List[*class]

	dependents     map[*waiter]struct{} // waiters of other queues that hold permits of this one
	dependentCount atomic.Int32         // their number; lets waiters skip them without the mutex
	dependentLevel int                  // all of them were raised to at least this tier

	admits  admission       // for Over
	spends  bool            // for Over: the gate behind the queue spends its permits, as the last grant has shown
	counts  sema.Counts     // Acquired counts only classes that are gone
	idle    []chan struct{} // closed when nothing is in use
	decided wakes           // waiters to wake at the end of the critical section
	resumed chan struct{}   // closed by Resume; nil unless draining
}

// slowFlag exceeds every number of permits. Less any weight, it still does.
const slowFlag = ^uint64(0)

// A phase is what a queue does with callers.
type phase uint8

const (
	open phase = iota
	draining
	closed
)

var _ sema.Gate = (*Queue)(nil)

// New returns a queue with capacity permits, all free. A capacity of 0 pauses the queue
// until a Resize, and one above [sema.MaxCapacity] means unlimited. New panics if capacity
// is negative.
func New(capacity int64, opts ...Option) *Queue {
	q := &Queue{settings: newSettings(opts), names: new(names), fallback: Share{Weight: 1}}
	q.capacity = checkCapacity("New", capacity)
	q.word.Store(uint64(q.capacity))
	q.now = now()
	q.monitor = sema.NewMonitor(q, q.settings.shared...)
	return q
}

func checkCapacity(op string, capacity int64) int64 {
	if capacity < 0 {
		panic(fmt.Sprintf("wfq: %s(%d): capacity is negative; use 0 to pause", op, capacity))
	}
	return min(capacity, sema.MaxCapacity)
}

// now returns the monotonic time in ns.
func now() int64 { return int64(monotonic.Since()) }

// Name returns the name that the option [sema.Name] set.
func (q *Queue) Name() string { return q.settings.Name }

// Acquire acquires n permits in the class of the context, see [With] and [Class.Acquire].
func (q *Queue) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	return q.Class(ClassOf(ctx)).Acquire(ctx, n)
}

// TryAcquire acquires n permits in the class of the context without waiting, see [With]
// and [Class.TryAcquire].
func (q *Queue) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	return q.Class(ClassOf(ctx)).TryAcquire(ctx, n)
}

type classKey struct{}

// With returns a context in which a [Queue] acquires in the named class.
func With(ctx context.Context, class string) context.Context {
	return context.WithValue(ctx, classKey{}, class)
}

// ClassOf returns the class that [With] put into ctx, or "".
func ClassOf(ctx context.Context) string {
	if ctx == nil {
		return ""
	}
	name, _ := ctx.Value(classKey{}).(string)
	return name
}

// Set sets the share of a class, at any time. A class that was set is kept while it is
// idle. Waiters that the new share can never serve fail with [sema.ErrTooLarge]. Set panics
// if the share is invalid.
func (q *Queue) Set(name string, s Share) {
	s = s.normalise("Set", name)
	handle := q.Class(name)
	defer runtime.KeepAlive(handle) // or else the class could be deleted meanwhile
	c := handle.class
	q.lock()
	c.pinned = true
	c.setShareLocked(s)
	c.rejectTooLargeLocked()
	waits := c.waiters > 0
	q.unlock()
	if waits {
		q.raiseDependents(s.Tier)
	}
}

// Unset returns a class to the share of [Queue.Default], and forgets it when it is idle.
func (q *Queue) Unset(name string) {
	handle := q.Class(name)
	defer runtime.KeepAlive(handle)
	q.lock()
	defer q.unlock()
	handle.class.pinned = false
	handle.class.setShareLocked(q.fallback)
	handle.class.rejectTooLargeLocked()
}

// Default sets the share of all classes that were not set. It panics if the share is
// invalid.
func (q *Queue) Default(s Share) {
	s = s.normalise("Default", "")
	q.lock()
	defer q.unlock()
	q.fallback = s
	for c := range q.names.all {
		if !c.pinned {
			c.setShareLocked(s)
		}
	}
	q.rejectTooLargeLocked()
}

// lock begins a critical section: it locks mu and makes the queue slow, so that only the
// holder of mu changes anything but the inUse of classes.
func (q *Queue) lock() {
	at := now() // before the mutex is locked: its critical sections are short
	spinlock.Lock(&q.mu)
	q.tickLocked(at)
	if !q.slow {
		q.slow, q.free = true, int64(q.word.Swap(slowFlag))
	}
}

// tickLocked advances the clock of the queue to a time that was read before the mutex was
// locked. If that is long ago, the caller has waited for the mutex, or the queue has entered a
// testing/synctest bubble, where the year is 2000: another reading decides.
func (q *Queue) tickLocked(at int64) {
	if at+q.skew < q.now-int64(time.Second) {
		at = now()
		q.skew += max(0, q.now-(at+q.skew))
	}
	q.now = max(q.now, at+q.skew)
}

// unlock ends a critical section: it serves waiters, and makes the queue calm if nothing
// needs the mutex any more. Waiters are woken after it, so that they do not block on the mutex.
func (q *Queue) unlock() {
	q.dispatchLocked()
	if q.free == q.capacity {
		for _, idle := range q.idle {
			close(idle)
		}
		q.idle = nil
	}
	if q.waiters == 0 && q.phase == open && q.free >= 0 && len(q.idle) == 0 {
		q.slow = false
		q.word.Store(uint64(q.free))
	}
	w := q.decided.first
	q.decided = wakes{}
	q.mu.Unlock()
	for w != nil {
		next := w.next // read before the send, after which w may be reused
		w.wake <- struct{}{}
		w = next
	}
}
