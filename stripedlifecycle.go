package sema

import (
	"context"
	"math"
)

// The lifecycle of a Striped is that of a [Semaphore]. Its queue is a core. The core
// contains all free permits while it is closed, draining, in debt or watched by WaitIdle.
// To gather is to move the permits there; to scatter is to return them to the cells:
//
//	           gather: demand + 1; each cell is shut and emptied into the queue
//	┌───────────┐ ──────────────────────────────────────────────────▶ ┌──────────┐
//	│ scattered │                                                     │ gathered │
//	└───────────┘ ◀────────────────────────────────────────────────── └──────────┘
//	           scatter: free permits into the cells, which open; demand − 1
//
// Both happen with queue.mu held. The critical section of each lifecycle method begins
// with a gather. It ends with a scatter unless the slow flag of the queue is still set. A
// release that clears the flag scatters too.
//
// Invariants, whenever queue.mu is unlocked:
//
//	in cells + free in the queue + held == capacity + debt
//	slow flag set ⇒ gathered
//	gathered      ⇒ every cell shut, demand > 0
//	not gathered  ⇒ no cell shut
//
// The first invariant holds because each step moves permits from one term to another:
//
//	take     cell → holder
//	put      holder → cell
//	recall   cell → queue
//	give     holder → queue
//	grant    queue → holder
//	gather   all cells → queue
//	scatter  queue → all cells
//
// Only setCapacityLocked and payDebtLocked change the right side, and they change the
// free permits of the queue by as much.
//
// The lock-free path needs no instruction for this. A shut cell has a negative count, so
// that take fails as for an empty one. A release may read a demand of 0 just before a
// gather, and then put its permit into a shut cell. No caller can acquire the permit
// there. The release reads demand once more, as always, and moves the permit to the
// queue.
//
// No wake-up is lost. A caller increments demand before it searches the cells, and then
// locks queue.mu to join the queue. Scatter fills the cells before it reads demand. So
// either the caller finds the permits in the cells, or scatter sees the demand and
// returns the permits to the queue before it unlocks.

// shutCell is added to the count of a cell that is shut. The sum is negative: a cell has
// at most MaxCapacity permits, which is less than half of −shutCell.
const shutCell = math.MinInt64 / 2

var _ section = (*Striped)(nil)

// Resize changes the capacity, up or down, at any time, like [Semaphore.Resize]: growing
// serves waiters at once; after a shrink, releases pay the debt before the queue is
// served; Resize(0) pauses. It moves permits between the cells, of which there are two
// for each processor. Resize panics if capacity is negative.
func (s *Striped) Resize(capacity int64) {
	s.mustBeNew("Resize")
	n := checkCapacity("Resize", s.name, capacity)
	s.lock()
	s.unlock(s.queue.setCapacityLocked(n))
	s.monitor.resized(int64(n))
}

// Drain rejects all callers, queued ones included, with ErrDraining, and waits until all
// permits are released. If ctx ends first, the error wraps its cause and contains the
// number of permits held; the semaphore continues to drain. If Resume is called, Drain
// returns early with an error.
func (s *Striped) Drain(ctx context.Context) error {
	const op = "drain"
	if ctx == nil {
		return s.fault(op, 0, ErrInvalid, nilContext)
	}
	s.mustBeNew(op)
	s.lock()
	out, resumed := s.queue.drainLocked()
	s.unlock(out)
	s.monitor.Report(Event{Kind: EventDrained})
	return s.queue.waitIdle(ctx, s, op, s.name, resumed)
}

// Resume ends draining. A closed semaphore stays closed.
func (s *Striped) Resume() {
	s.mustBeNew("Resume")
	s.lock()
	s.unlock(s.queue.resumeLocked())
}

// WaitIdle waits until no permit is held. Callers may continue to acquire. If ctx ends
// first, the error wraps its cause and contains the number of permits held.
func (s *Striped) WaitIdle(ctx context.Context) error {
	const op = "wait until idle"
	if ctx == nil {
		return s.fault(op, 0, ErrInvalid, nilContext)
	}
	s.mustBeNew(op)
	return s.queue.waitIdle(ctx, s, op, s.name, nil)
}

// Close rejects all callers, queued ones included, with ErrClosed, for good. Permits that
// are held can still be released. Close always returns nil.
func (s *Striped) Close() error {
	s.mustBeNew("Close")
	s.lock()
	first := s.queue.phase != shut
	s.unlock(s.queue.rejectAllLocked(shut))
	if first {
		s.monitor.Report(Event{Kind: EventClosed})
	}
	return nil
}

// lock locks the queue and gathers the permits.
func (s *Striped) lock() {
	s.queue.lock()
	if !s.gathered.Load() {
		s.gatherLocked()
	}
}

// unlock ends a critical section of the queue. It scatters the permits unless they have
// to stay gathered.
func (s *Striped) unlock(out wakes) {
	if s.gathered.Load() && s.queue.flagsLocked()&slowFlag == 0 {
		s.scatterLocked(&out)
	}
	s.queue.unlock(out)
}

// gatherLocked moves all free permits to the queue. It increments demand before it shuts
// the cells, so that a release that finds its cell shut also sees the demand.
func (s *Striped) gatherLocked() {
	s.moves.Add(1)
	s.gathered.Store(true)
	s.demand.Add(1)
	found := int64(0)
	for i := range s.cells {
		found += s.cells[i].free.Swap(shutCell)
	}
	s.queue.word.Add(uint64(found))
	s.moves.Add(1)
}

// scatterLocked moves all free permits to the cells and opens them. If there is demand
// then, callers may have seen the cells empty: the permits return to the queue, which
// serves its waiters.
func (s *Striped) scatterLocked(out *wakes) {
	s.moves.Add(1)
	free := s.queue.takeUpToLocked(maxCount)
	for i := range s.cells {
		s.cells[i].free.Add(s.share(i, free) - shutCell)
	}
	s.gathered.Store(false)
	if s.demand.Add(-1) > 0 {
		found := int64(0)
		for i := range s.cells {
			found += s.cells[i].free.Swap(0)
		}
		s.queue.word.Add(uint64(found))
		s.queue.settleIntoLocked(out)
	}
	s.moves.Add(1)
}

// share returns how many of n permits belong in cell i.
func (s *Striped) share(i int, n uint64) int64 {
	cells := uint64(len(s.cells))
	share := n / cells
	if uint64(i) < n%cells {
		share++
	}
	return int64(share)
}

// count returns the number of permits in the cell.
func (c *cell) count() int64 {
	n := c.free.Load()
	if n < 0 {
		n -= shutCell
	}
	return n
}
