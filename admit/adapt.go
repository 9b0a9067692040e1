package admit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/internal/gatestats"
	"github.com/sema-go/sema/internal/monotonic"
)

// A Limit computes how many requests may be in flight, from what was measured. It is called
// by one goroutine at a time. [AIMD], [Vegas] and [Gradient] implement it.
type Limit interface {
	// Next returns the limit to use after a window.
	Next(w Window) int64
}

// A Window is what an [Adapter] has measured since the limit was last computed.
type Window struct {
	Limit    int64         // in force
	InFlight int64         // the most permits in use that were seen
	Calls    int64         // requests with the result OK
	Dropped  int64         // requests with the result Dropped
	Min      time.Duration // the shortest duration of the Calls
	Mean     time.Duration // their mean duration
}

// busy reports whether so many requests were in flight that the limit mattered. Only then a
// good window is a reason to raise it.
func (w Window) busy() bool { return 2*w.InFlight >= w.Limit }

const (
	windowLength = 100 * time.Millisecond // the least duration of a window
	windowCalls  = 10                     // the least number of results in a window
	windowLooks  = 8                      // how often a window looks at what is in flight
)

// An Adapter resizes a gate to the limit that a [Limit] computes. Create it with [Adapt]; a
// [Controller] has one if [Config.Limit] is set. It is safe for concurrent use.
type Adapter struct {
	limit    Limit
	resize   func(int64)
	failed   func() bool                  // whether the last resize failed; nil: it cannot
	inFlight func() (n int64, waits bool) // nil: unknown
	capacity func() int64                 // of the target, which others may resize; nil: current is all that is known
	current  atomic.Int64                 // 0: unknown

	// Most results are added to these without the lock, until due.
	due   atomic.Int64  // when the lock is needed next: to look at what is in flight, or to end the window
	quick atomic.Uint64 // results since the lock was held, see addQuickly
	least atomic.Int64  // the shortest duration of the window

	mu    sync.Mutex // guards what follows, and is held while limit and resize are called
	begin time.Duration
	look  time.Duration // when inFlight is called next
	sum   time.Duration
	w     Window
}

// Adapt returns an adapter that resizes target to the limit that l computes. The target has
// a method Resize(int64), or Resize(context.Context, int64) error such as a semaphore of a
// fleet. Adapt panics if it has neither, or if the limit is invalid. The limit starts at the
// capacity of the target, if its method Stats returns one, and otherwise at what is in
// flight. A capacity that an operator has set is the start of the next window, and one of 0
// stays until the operator raises it.
func Adapt(target any, l Limit) *Adapter {
	if l == nil {
		panic("admit: Adapt: the limit is nil")
	}
	if v, ok := l.(interface{ check() error }); ok {
		if err := v.check(); err != nil {
			panic("admit: Adapt: " + err.Error())
		}
	}
	a := &Adapter{limit: l}
	inBackground := false
	switch t := target.(type) {
	case interface{ Resize(int64) }:
		a.resize = t.Resize
	case interface {
		Resize(context.Context, int64) error
	}:
		b := &background{to: t.Resize}
		a.resize, a.failed, inBackground = b.resize, b.hasFailed, true
	default:
		panic(fmt.Sprintf("admit: Adapt(%T): want a method Resize(int64) or Resize(context.Context, int64) error", target))
	}
	if stats := gatestats.Of(target); stats != nil {
		st, _ := stats()
		a.current.Store(st.Capacity)
		a.inFlight = func() (int64, bool) {
			st, _ := stats()
			return st.InUse, st.Waiters > 0
		}
		if !inBackground { // or else the capacity may be that of before the last resize
			a.capacity = func() int64 {
				st, _ := stats()
				return st.Capacity
			}
		}
	}
	return a
}

// resizeTimeout bounds a Resize that does I/O.
const resizeTimeout = 10 * time.Second

// A background resizes a target that does I/O, in another goroutine. While a call is under
// way, only the latest limit is kept. A resize that has failed is repeated after the next
// window.
type background struct {
	to func(context.Context, int64) error

	mu      sync.Mutex // guards what follows
	running bool
	failed  bool
	latest  int64
}

// hasFailed reports whether the last resize failed.
func (b *background) hasFailed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// resize starts a resize to n, or lets the one that is under way be followed by it.
func (b *background) resize(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.latest, b.failed = n, false
	if !b.running {
		b.running = true
		go b.run()
	}
}

// run resizes until the latest limit has been tried.
func (b *background) run() {
	for {
		b.mu.Lock()
		n := b.latest
		b.mu.Unlock()
		err := b.try(n)
		b.mu.Lock()
		if b.latest == n {
			b.failed, b.running = err != nil, false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
	}
}

func (b *background) try(n int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), resizeTimeout)
	defer cancel()
	return b.to(ctx, n)
}

// Limit returns the limit in force, or 0 if none was computed or known yet.
func (a *Adapter) Limit() int64 {
	if a == nil {
		return 0
	}
	return a.current.Load()
}

// Sample reports the result of a request and how long it took. A negative duration counts as 0.
func (a *Adapter) Sample(o Result, took time.Duration) {
	a.sample(o, max(0, took), monotonic.Since(), 0)
}

// sample adds a result to the window, and computes the limit if the window is complete. The
// request has just returned the given number of permits.
func (a *Adapter) sample(o Result, took, now time.Duration, returned int64) {
	if a == nil || o != OK && o != Dropped || o == OK && a.addQuickly(took, now) {
		return
	}
	if o == Dropped {
		a.mu.Lock() // each drop counts
	} else if !a.mu.TryLock() {
		return // a sample less does not matter; waiting for the lock would
	}
	defer a.mu.Unlock() // also if limit or resize panic
	if w, complete := a.addLocked(o, took, now, returned); complete {
		a.resizeLocked(w)
	}
}

// Adapter.quick has the number of results in its upper bits, and the sum of their durations in
// its lower ones, in a unit that keeps the sum from overflowing: 70,000 results of a second
// in a window.
const (
	quickShift = 40
	quickUnit  = 64 * time.Nanosecond
	quickMost  = time.Second // a longer duration takes the lock
)

// addQuickly adds a result without the lock. It fails if the lock is needed.
func (a *Adapter) addQuickly(took, now time.Duration) bool {
	left := time.Duration(a.due.Load()) - now // in a testing/synctest bubble the clock steps back
	if left <= 0 || left > windowLength || took > quickMost || int64(took) < a.least.Load() {
		return false
	}
	a.quick.Add(1<<quickShift + uint64((took+quickUnit/2)/quickUnit))
	return true
}

// gatherLocked adds the results of addQuickly to the window.
func (a *Adapter) gatherLocked() {
	quick := a.quick.Swap(0)
	a.w.Calls += int64(quick >> quickShift)
	a.sum += time.Duration(quick&(1<<quickShift-1)) * quickUnit
}

// resizeLocked resizes the target to the limit after a window.
func (a *Adapter) resizeLocked(w Window) {
	if a.capacity != nil && w.Limit == 0 {
		return // an operator has paused the target
	}
	next := a.limit.Next(w)
	if next == w.Limit && (a.failed == nil || !a.failed()) {
		return
	}
	next = max(1, next)
	a.current.Store(next)
	a.resize(next)
}

// addLocked adds a result, and returns the window if it is complete.
func (a *Adapter) addLocked(o Result, took, now time.Duration, returned int64) (Window, bool) {
	if a.w.Calls+a.w.Dropped == 0 {
		a.begin, a.look, a.sum = now, now, 0
		a.w = Window{Min: took}
	}
	a.gatherLocked()
	if o == Dropped {
		a.w.Dropped++
	} else {
		a.w.Calls++
		a.w.Min = min(a.w.Min, took)
		a.sum += took
	}
	elapsed := now - a.begin
	complete := elapsed >= windowLength && a.w.Calls+a.w.Dropped >= windowCalls
	if a.inFlight != nil && (now >= a.look || complete) {
		n, waits := a.inFlight()
		limit := a.current.Load()
		if waits {
			n = max(n, limit)
		}
		n = max(n, min(n+returned, limit)) // others may have acquired what was returned
		a.w.InFlight = max(a.w.InFlight, n)
		a.look = now + windowLength/windowLooks
	}
	a.least.Store(int64(a.w.Min))
	if !complete {
		a.due.Store(int64(min(a.look, a.begin+windowLength)))
		return Window{}, false
	}
	a.due.Store(int64(now)) // the next result begins a window
	w := a.w
	if a.capacity != nil {
		a.current.Store(a.capacity())
	}
	if w.Limit = a.current.Load(); w.Limit == 0 && a.capacity == nil {
		w.Limit = w.InFlight
	}
	if w.Calls > 0 {
		w.Mean = a.sum / time.Duration(w.Calls)
	}
	a.w = Window{}
	return w, true
}
