package sema

import "context"

// Weighted is golang.org/x/sync/semaphore v0.24.0 to the letter, faster: same
// names, results and panics, so that
//
//	import semaphore "github.com/sema-go/sema"
//
// is all a program needs to change. Being that, it lacks what [Semaphore]
// guarantees: an Acquire of more than its size waits for the context, and only
// care keeps callers from releasing what they do not hold.
//
// Two differences can be seen by a caller that looks for them. Weights beyond
// [MaxCapacity] count as MaxCapacity. And x/sync leaves a waiter for nothing
// (weight 0) asleep when the one before it gives up while no permit is free;
// Weighted lets it go on.
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
		<-done // doomed to fail: do not make others wait behind it
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

// Release releases the semaphore with a non-negative weight of n.
//
// It is written to be inlined. One comparison finds both a flag and an
// over-release: each makes the word larger than the size.
func (s *Weighted) Release(n int64) {
	if uint64(n) > maxCount || s.word.Add(uint64(n)) > s.capacity {
		s.release(n)
	}
}

// release deals with a Release that is odd (n was not added yet), or met a
// flag or too many permits (it was).
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
		c.takeUpTo(over - min(over, maxCount)) // keep clear of the flags
		c.mu.Unlock()
		panic("semaphore: released more than held")
	}
	c.unlock(c.settle())
}

// Stats returns a snapshot, which x/sync does not have. Acquired and Rejected are 0:
// calls that need not be queued are not counted.
func (s *Weighted) Stats() Stats {
	st := s.core().stats()
	st.Free = min(st.Free, st.Capacity) // more is free after a recovered over-release
	st.InUse = st.Capacity - st.Free
	st.Rejected = 0
	return st
}

// core is the same thing by its other name. Weighted is defined as a core, not
// as a struct around one, because the inliner counts field selections and
// Release is at its budget. The capacity is fixed, so it is read without mu.
func (s *Weighted) core() *core { return (*core)(s) }

func clampWeight(n int64) uint64 { return min(uint64(n), maxCount) }
