package classic

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/bits"
	"sync"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/describe"
)

// A Buffer is a queue of items with a fixed capacity, for producers and consumers. Items
// leave it in the order in which they came. Create it with [NewBuffer]. It is safe for
// concurrent use.
//
// It is the textbook's pair of semaphores, empty and full, with the queue that they guard.
// The invariant is
//
//	empty + full == capacity
//
// where empty is the room for producers and full the number of items; see [BufferStats].
//
// Producers that wait are served in order of arrival, and so are consumers. Each of the two
// queues has the bounds of the options [sema.MaxWait] and [sema.MaxWaiters]. Observers
// receive the events of producers with the class "put", and those of consumers with the
// class "take".
type Buffer[T any] struct {
	// What every operation uses fits into one cache line, which moves between cores.

	mu       sync.Mutex // guards the fields up to the padding, and the queues
	ring     []T        // its length is a power of two, at least the capacity
	capacity uint64
	removed  uint64 // items ever removed
	added    uint64 // items ever added
	closed   bool
	waiting  bool // a queue is not empty
	_        [64]byte

	puts    side[T]
	takes   side[T]
	seed    uint64        // where TakeAny starts; mu guards it
	waiters sync.Pool     // of *waiter[T], see newWaiter
	monitor *sema.Monitor // of both sides; nil unless observed or diagnosed
}

// NewBuffer returns an empty buffer for capacity items. It panics if capacity is not
// positive.
func NewBuffer[T any](capacity int, opts ...sema.SharedOption) *Buffer[T] {
	if capacity < 1 {
		panic(fmt.Sprintf("classic: NewBuffer(%d): want a positive capacity", capacity))
	}
	b := &Buffer[T]{capacity: uint64(capacity), ring: make([]T, 1<<bits.Len(uint(capacity-1)))}
	puts, takes := watched{stats: func() sema.Stats { return b.Stats().Puts }}, watched{stats: func() sema.Stats { return b.Stats().Takes }}
	b.puts.op, b.takes.op = "put", "take"
	b.puts.init(opts, puts.stats)
	b.takes.init(opts, takes.stats)
	// A full buffer is exhausted, and an empty one is not: its consumers have caught up.
	b.monitor = sema.NewMonitor(puts, opts...)
	b.puts.monitor, b.takes.monitor = b.monitor.ForClass(puts, b.puts.op), b.monitor.ForSignals(takes, b.takes.op)
	return b
}

// Put adds an item. It waits while the buffer is full. It fails with the context's cause,
// [sema.ErrTimeout] or [sema.ErrQueueFull] (options MaxWait and MaxWaiters), [sema.ErrClosed],
// or [sema.ErrInvalid] if ctx is nil. The item is in the buffer if and only if the error is
// nil, also if the context ends at the same instant.
func (b *Buffer[T]) Put(ctx context.Context, v T) error {
	if b.puts.monitor == nil && ctx != nil && ctx.Err() == nil && b.putNow(v) {
		return nil
	}
	w := b.newWaiter()
	defer b.recycle(w)
	w.one[0] = v
	w.items = w.one[:]
	return b.enter(ctx, &b.puts, w)
}

// TryPut adds an item if that is possible without waiting, and reports whether it did. It
// never overtakes a producer that waits.
func (b *Buffer[T]) TryPut(v T) bool {
	ok := b.putNow(v)
	if !ok || b.puts.monitor != nil {
		b.tried(&b.puts, ok)
	}
	return ok
}

// putNow adds an item if there is room for it. While a producer waits the ring is full, so
// none is overtaken.
func (b *Buffer[T]) putNow(v T) bool {
	b.lock()
	if b.closed || b.added-b.removed == b.capacity {
		b.mu.Unlock()
		return false
	}
	*b.slot(b.added) = v
	b.added++
	b.unlockServing()
	return true
}

// PutAll adds all items, next to each other, and returns how many it has added: fewer only
// with an error, and then the first n items are in the buffer. It waits like Put while
// there is no room, and adds some items as soon as there is room for some. So there may be
// more items than the capacity.
func (b *Buffer[T]) PutAll(ctx context.Context, items []T) (n int, err error) {
	if b.puts.monitor == nil && ctx != nil && ctx.Err() == nil && b.putAllNow(items) {
		return len(items), nil
	}
	w := b.newWaiter()
	defer b.recycle(w)
	w.items = items
	err = b.enter(ctx, &b.puts, w)
	return w.done, err
}

// putAllNow adds all items if there is room for them.
func (b *Buffer[T]) putAllNow(items []T) bool {
	b.lock()
	if b.closed || len(items) == 0 || b.lenLocked()+len(items) > b.Cap() {
		b.mu.Unlock()
		return false
	}
	b.pushLocked(items)
	b.unlockServing()
	return true
}

// Take removes the first item and returns it. It waits while the buffer is empty, and fails
// as Put does. A closed buffer fails once it is empty. An item that was removed is returned,
// also if the context ends at the same instant.
func (b *Buffer[T]) Take(ctx context.Context) (v T, err error) {
	if b.takes.monitor == nil && ctx != nil && ctx.Err() == nil {
		if v, ok := b.takeNow(); ok {
			return v, nil
		}
	}
	w := b.newWaiter()
	defer b.recycle(w)
	w.items = w.one[:]
	err = b.enter(ctx, &b.takes, w)
	return w.one[0], err
}

// TryTake removes the first item, if there is one, and reports whether there was.
func (b *Buffer[T]) TryTake() (v T, ok bool) {
	v, ok = b.takeNow()
	if !ok || b.takes.monitor != nil {
		b.tried(&b.takes, ok)
	}
	return v, ok
}

// takeNow removes the first item, if there is one. While a consumer waits the ring is
// empty, so none is overtaken.
func (b *Buffer[T]) takeNow() (v T, ok bool) {
	b.lock()
	if b.added == b.removed {
		b.mu.Unlock()
		return v, false
	}
	first := b.slot(b.removed)
	v = *first
	var none T
	*first = none // for the garbage collector
	b.removed++
	b.unlockServing()
	return v, true
}

// TakeUpTo removes the first items, as many as there are and as into has room for, and
// returns their number. It waits like Take until there is one. The items were next to each
// other in the buffer.
func (b *Buffer[T]) TakeUpTo(ctx context.Context, into []T) (n int, err error) {
	if b.takes.monitor == nil && ctx != nil && ctx.Err() == nil {
		if n := b.takeUpToNow(into); n > 0 {
			return n, nil
		}
	}
	w := b.newWaiter()
	defer b.recycle(w)
	w.items = into
	err = b.enter(ctx, &b.takes, w)
	return w.done, err
}

// takeUpToNow removes the items that are there.
func (b *Buffer[T]) takeUpToNow(into []T) int {
	b.lock()
	n := b.popLocked(into)
	b.unlockServing()
	return n
}

// All yields items as Take removes them, until the buffer is closed and empty. If ctx ends
// or MaxWait passes, it yields that error, and ends.
func (b *Buffer[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			v, err := b.Take(ctx)
			if errors.Is(err, sema.ErrClosed) && b.isDrained() || !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// isDrained reports whether the buffer is closed and empty. The cause of a context may be
// ErrClosed as well.
func (b *Buffer[T]) isDrained() bool {
	b.lock()
	defer b.mu.Unlock()
	return b.closed && b.added == b.removed
}

// Close rejects producers, those that wait included, with [sema.ErrClosed]. Consumers can
// still take the items that are in the buffer, and then get the same error. Close always
// returns nil.
func (b *Buffer[T]) Close() error {
	b.lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	var out woken[T]
	b.rejectLocked(&b.puts, &out)
	b.rejectLocked(&b.takes, &out) // consumers wait only while there is no item
	b.unlock(out)
	b.monitor.Report(sema.Event{Kind: sema.EventClosed})
	return nil
}

// Len returns the number of items in the buffer.
func (b *Buffer[T]) Len() int {
	b.lock()
	defer b.mu.Unlock()
	return b.lenLocked()
}

// Cap returns the capacity.
func (b *Buffer[T]) Cap() int { return int(b.capacity) }

// Name returns the name that the option [sema.Name] set, or "".
func (b *Buffer[T]) Name() string { return b.puts.Name }

// BufferStats is the state of a buffer at one instant. Puts.Free is its room and Takes.Free
// the number of its items; their sum is the capacity. Acquired counts items.
// WaitTime is 0: reading a clock would take as long as the rest of a wait. Observers
// receive the time of each wait.
type BufferStats struct {
	Puts, Takes sema.Stats
}

// Stats returns a snapshot.
func (b *Buffer[T]) Stats() BufferStats {
	b.lock()
	defer b.mu.Unlock()
	items, room := int64(b.lenLocked()), int64(b.Cap()-b.lenLocked())
	st := BufferStats{Puts: b.statsLocked(&b.puts, items, room), Takes: b.statsLocked(&b.takes, room, items)}
	st.Puts.Acquired, st.Takes.Acquired = int64(b.added), int64(b.removed)
	return st
}

func (b *Buffer[T]) statsLocked(s *side[T], inUse, free int64) sema.Stats {
	return sema.Stats{Capacity: int64(b.capacity), InUse: inUse, Free: free, Waiters: s.queue.Len(), Closed: b.closed, Counts: s.counts}
}

// String returns the name and the state in one line.
func (b *Buffer[T]) String() string {
	st := b.Stats()
	return fmt.Sprintf("%s: %d of %d items, %d producers and %d consumers waiting%s", describe.Title("buffer", b.puts.Name),
		st.Takes.Free, st.Takes.Capacity, st.Puts.Waiters, st.Takes.Waiters, suffix(st.Puts.Closed))
}

// GoString returns the same as String.
func (b *Buffer[T]) GoString() string { return b.String() }

// LogValue implements [slog.LogValuer].
func (b *Buffer[T]) LogValue() slog.Value { return slog.StringValue(b.String()) }
