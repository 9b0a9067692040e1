package sema

import "context"

// A Weighted replaces the Weighted of golang.org/x/sync/semaphore v0.24.0, and is faster.
// It has the same methods, results and panics, so that
//
//	import semaphore "github.com/sema-go/sema"
//
// is the only change a program needs. Therefore it lacks some guarantees of
// [Semaphore]: an Acquire of more than its size waits for the end of the context, and
// callers can release what they do not hold.
//
// There are two exceptions. Weights beyond [MaxCapacity] count as MaxCapacity. And when
// a waiter gives up while no permit is free, x/sync does not wake a waiter of weight 0
// behind it; Weighted does.
type Weighted core

// NewWeighted creates a new weighted semaphore with the given maximum combined
// weight for concurrent access. It panics if n is negative.
func NewWeighted(n int64) *Weighted {
	if n < 0 {
		panic("semaphore: size < 0")
	}
	s := new(Weighted)
	s.core().init(clampWeight(n))
	return s
}

// Acquire acquires the semaphore with a non-negative weight of n, blocking
// until resources are available or ctx is done. On success, returns nil. On
// failure, returns ctx.Err() and leaves the semaphore unchanged.
func (s *Weighted) Acquire(ctx context.Context, n int64) error {
	if uint64(n) <= maxCount && ctx.Err() == nil && s.core().take(uint64(n)) {
		return nil
	}
	return s.acquire(ctx, n)
}

func (s *Weighted) acquire(ctx context.Context, n int64) error {
	if n < 0 {
		panic("semaphore: n < 0")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	weight, done := clampWeight(n), ctx.Done()
	if weight > s.capacity && !s.core().takeAgain(weight) {
		<-done // cannot succeed: do not let others queue behind it
		return ctx.Err()
	} else if weight > s.capacity {
		return nil // only after a recovered over-release
	}
	w, v := s.core().enter(weight, done)
	if v == pending {
		v = s.core().park(ctx, w, 0)
	}
	if v != granted {
		return ctx.Err()
	}
	return nil
}

// TryAcquire acquires the semaphore with a non-negative weight of n without
// blocking. On success, returns true. On failure, returns false and leaves the
// semaphore unchanged.
func (s *Weighted) TryAcquire(n int64) bool {
	if n < 0 {
		panic("semaphore: n < 0")
	}
	return s.core().takeAgain(clampWeight(n))
}

// Release releases the semaphore with a non-negative weight of n. It panics if more
// is released than held.
func (s *Weighted) Release(n int64) {
	// Small enough to be inlined. One comparison detects both a flag and an
	// over-release: each makes the word larger than the size.
	if uint64(n) > maxCount || s.word.Add(uint64(n)) > s.capacity {
		s.release(n)
	}
}

// release handles the slow path of Release. If n is negative or above maxCount it has
// not been added yet. Otherwise it has been added, and a flag or an over-release was
// found.
func (s *Weighted) release(n int64) {
	if n < 0 {
		panic("semaphore: n < 0")
	}
	if uint64(n) > maxCount {
		s.word.Add(maxCount)
	}
	c := s.core()
	c.mu.Lock()
	if over := c.free(); over > s.capacity {
		c.takeUpToLocked(over - min(over, maxCount)) // keep the count out of the flag bits
		c.mu.Unlock()
		panic("semaphore: released more than held")
	}
	c.unlock(c.settleLocked())
}

// Stats returns a snapshot, which x/sync does not provide. Acquired and Rejected are 0:
// calls that are decided without queueing are not counted.
func (s *Weighted) Stats() Stats {
	st := s.core().stats()
	st.Free = min(st.Free, st.Capacity) // a recovered over-release leaves more free
	st.InUse = st.Capacity - st.Free
	st.Rejected = 0
	return st
}

// core returns s as a core. Weighted is defined as a core, not as a struct around one,
// because the inliner counts field selections and Release is at its budget. The capacity
// is fixed, so it is read without mu.
func (s *Weighted) core() *core { return (*core)(s) }

func clampWeight(n int64) uint64 { return min(uint64(n), maxCount) }
