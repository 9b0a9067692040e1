package classic

import (
	"context"
	"runtime"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/list"
)

// A side is one of the two queues of a buffer: the producers or the consumers that wait.
//
// While no lock is held, producers wait only if the ring is full, and consumers only if it
// is empty: settleLocked serves them otherwise.
type side[T any] struct {
	facility
	op string // "put" or "take", also the class of its events

	queue  list.List[*waiter[T]] // Buffer.mu guards it and the counts
	counts sema.Counts
}

// A waiter is a call that may have to wait. Buffer.mu guards it while it is in a queue.
// Then only the caller uses it, after it has received from wake if it was woken.
type waiter[T any] struct {
	items  []T // to be added, or the places of those to be removed
	done   int // how many of them were
	one    [1]T
	err    error
	node   list.Node[*waiter[T]]
	choice *choice // of a TakeAny; else nil
	index  int     // of the buffer in the choice

	parked bool       // the caller receives from wake
	next   *waiter[T] // in a woken
	parking
}

// newWaiter returns a waiter, in general one that was used before.
func (b *Buffer[T]) newWaiter() *waiter[T] {
	reused := mayReuse()
	if reused {
		if w, ok := b.waiters.Get().(*waiter[T]); ok {
			return w
		}
	}
	w := &waiter[T]{parking: newParking(reused)}
	w.node.Of = w
	return w
}

// recycle keeps a waiter for later callers. It is in no queue, and wake is empty.
func (b *Buffer[T]) recycle(w *waiter[T]) {
	if !w.reused {
		return
	}
	var none T
	w.one[0], w.items, w.done, w.err, w.parked = none, nil, 0, nil, false
	b.waiters.Put(w)
}

// enter moves the items of w, and waits while it cannot.
func (b *Buffer[T]) enter(ctx context.Context, s *side[T], w *waiter[T]) error {
	watch := s.monitor.BeginTry(ctx, int64(len(w.items)))
	if ctx == nil {
		return watch.Failed(s.fault(s.op, 0, errNilContext))
	}
	if ctx.Err() != nil {
		return watch.Failed(context.Cause(ctx))
	}
	if s.monitor != nil && b.mustWait(s, w) {
		watch.Queued() // before the caller is queued: observers may be slow
		if ctx.Err() != nil {
			return watch.Failed(context.Cause(ctx))
		}
	}
	err := b.join(s, w)
	if w.parked {
		err = b.park(ctx, s, w)
	}
	return s.conclude(&watch, s.op, err)
}

// mustWait reports whether the call would wait now. It may be wrong a moment later: then a
// wait is reported by its end alone.
func (b *Buffer[T]) mustWait(s *side[T], w *waiter[T]) bool {
	b.lock()
	defer b.mu.Unlock()
	switch {
	case b.closed || len(w.items) == 0 || !s.mayQueue(s.queue.Len()):
		return false
	case s == &b.puts:
		return b.lenLocked()+len(w.items) > b.Cap()
	default:
		return b.added == b.removed
	}
}

// join adds w to its queue and serves both queues. If w is not done then, it is parked, or
// rejected with a sentinel.
func (b *Buffer[T]) join(s *side[T], w *waiter[T]) error {
	b.lock()
	if b.closed && (s == &b.puts || b.added == b.removed) {
		return b.rejectedLocked(s, sema.ErrClosed)
	}
	if len(w.items) == 0 {
		b.mu.Unlock()
		return nil
	}
	may := s.mayQueue(s.queue.Len())
	s.queue.PushBack(&w.node)
	out := b.settleLocked()
	if !w.node.In() {
		b.unlock(out)
		return nil
	}
	if !may {
		s.queue.Remove(&w.node)
		s.counts.Failed(sema.ErrQueueFull, false)
		b.unlock(out)
		return sema.ErrQueueFull
	}
	w.parked = true
	s.counts.Waited++
	b.unlock(out)
	return nil
}

// rejectedLocked counts a call that fails with a sentinel, and unlocks the mutex.
func (b *Buffer[T]) rejectedLocked(s *side[T], err error) error {
	s.counts.Failed(err, false)
	b.mu.Unlock()
	return err
}

// park waits until w has left the queue, ctx ends or MaxWait passes.
func (b *Buffer[T]) park(ctx context.Context, s *side[T], w *waiter[T]) error {
	err := w.await(ctx, s.MaxWait)
	if err == nil {
		return w.err
	}
	b.lock()
	if !w.node.In() { // served or rejected in the same instant
		b.mu.Unlock()
		<-w.wake
		return w.err
	}
	s.queue.Remove(&w.node)
	s.counts.Failed(err, true)
	b.mu.Unlock()
	return err
}

// A woken is a list of waiters that have left their queue and are to be woken.
type woken[T any] struct{ first, last *waiter[T] }

func (out *woken[T]) add(w *waiter[T]) {
	if !w.parked {
		return // its caller has the lock
	}
	if out.last == nil {
		out.first = w
	} else {
		out.last.next = w
	}
	out.last = w
}

// lock locks the mutex. It is held for some nanoseconds, so the caller spins first, with
// pauses in which the holder keeps the cache line, and then yields. A sync.Mutex parks
// instead if other goroutines are ready to run, and after a millisecond hands itself over
// from one parked goroutine to the next. Both are slow here.
func (b *Buffer[T]) lock() {
	const spins, pause, yields = 4, 1000, 1000
	for i := range spins + yields {
		switch {
		case b.mu.TryLock():
			return
		case i < spins:
			for range pause {
			}
		default:
			runtime.Gosched()
		}
	}
	b.mu.Lock()
}

// unlock unlocks the mutex and wakes waiters. A waiter is reused as soon as it is woken.
func (b *Buffer[T]) unlock(out woken[T]) {
	b.mu.Unlock()
	for w := out.first; w != nil; {
		next := w.next
		w.next = nil
		w.wake <- struct{}{}
		w = next
	}
}

// unlockServing unlocks the mutex after items have come or gone, and serves waiters.
func (b *Buffer[T]) unlockServing() {
	if !b.waiting {
		b.mu.Unlock()
		return
	}
	b.unlock(b.settleLocked())
}

// settleLocked serves consumers while there are items, and producers while there is room,
// each in order of arrival.
func (b *Buffer[T]) settleLocked() (out woken[T]) {
	for {
		switch p, t := b.puts.queue.First(), b.takes.queue.First(); {
		case t != nil && b.added > b.removed:
			b.takes.queue.Remove(t)
			if w := t.Of; w.choice == nil || w.choice.decide(w.index) {
				w.done = b.popLocked(w.items)
				out.add(w)
			}
		case p != nil && b.lenLocked() < b.Cap():
			w := p.Of
			w.done += b.pushLocked(w.items[w.done:])
			if w.done == len(w.items) {
				b.puts.queue.Remove(p)
				out.add(w)
			}
		default:
			b.waiting = p != nil || t != nil
			return out
		}
	}
}

// rejectLocked ends the waits of one side because the buffer is closed.
func (b *Buffer[T]) rejectLocked(s *side[T], out *woken[T]) {
	for w := range s.queue.All {
		s.queue.Remove(&w.node)
		if w.choice == nil {
			w.err = sema.ErrClosed
			s.counts.Failed(sema.ErrClosed, true)
			out.add(w)
		} else if w.choice.closed() {
			out.add(w) // or else it waits for other buffers, or is decided; it counts itself
		}
	}
}

// slot returns the place of an item, by its number.
func (b *Buffer[T]) slot(i uint64) *T { return &b.ring[i&uint64(len(b.ring)-1)] }

func (b *Buffer[T]) lenLocked() int { return int(b.added - b.removed) }

// slots returns the places of n items, from the one with this number, in one or two parts.
func (b *Buffer[T]) slots(i uint64, n int) (first, rest []T) {
	start := int(i & uint64(len(b.ring)-1))
	first = b.ring[start:min(start+n, len(b.ring))]
	return first, b.ring[:n-len(first)]
}

// pushLocked adds items as far as there is room, and returns how many.
func (b *Buffer[T]) pushLocked(items []T) int {
	n := min(len(items), b.Cap()-b.lenLocked())
	first, rest := b.slots(b.added, n)
	copy(rest, items[copy(first, items):])
	b.added += uint64(n)
	return n
}

// popLocked removes the first items as far as there are any, and returns how many.
func (b *Buffer[T]) popLocked(into []T) int {
	n := min(len(into), b.lenLocked())
	first, rest := b.slots(b.removed, n)
	copy(into[copy(into, first):], rest)
	clear(first) // for the garbage collector
	clear(rest)
	b.removed += uint64(n)
	return n
}

// tried counts and reports a call that did not wait.
func (b *Buffer[T]) tried(s *side[T], ok bool) {
	watch := s.monitor.BeginTry(context.Background(), 1)
	if ok {
		watch.Spent(&s.spender, 1)
		return
	}
	b.lock()
	err := sema.ErrFull
	if b.closed {
		err = sema.ErrClosed
	}
	s.counts.Failed(err, false)
	b.mu.Unlock()
	if s.monitor != nil {
		watch.Failed(s.fault(s.op, 0, err))
	}
}
