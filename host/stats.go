package host

import (
	"context"
	"math/bits"

	"github.com/sema-go/sema"
)

// Stats returns the state of the semaphore on the whole machine, and the counters of
// s. It reads shared memory and makes no system calls: permits and waiters of a killed
// process count until another acquire, or [Semaphore.Inspect], detects it. After Close
// it returns the last known state.
func (s *Semaphore) Stats() sema.Stats {
	var st sema.Stats
	if s.file.ref() {
		st = s.file.snapshot()
		s.file.unref()
	} else if last := s.file.last.Load(); last != nil {
		st = *last
	}
	st.Closed = s.closed.Load()
	st.Counts = s.tally.Counts()
	return st
}

// snapshot returns the state according to shared memory alone.
func (f *file) snapshot() sema.Stats {
	inUse, waiters := 0, 0
	f.touch(func() {
		for i := range (min(f.head.reach.Load(), maxCapacity) + wordBits - 1) / wordBits {
			inUse += bits.OnesCount64(f.bitmap[i].Load() | f.mine[i].Load())
		}
		waiters = f.waiting()
	})
	return statsOf(f.config(), int64(inUse), waiters)
}

func statsOf(c config, inUse int64, waiters int) sema.Stats {
	capacity := c.capacity()
	return sema.Stats{
		Capacity: capacity, InUse: inUse, Waiters: waiters, Draining: c.draining(),
		Free: max(0, capacity-inUse), Debt: max(0, inUse-capacity),
	}
}

// An Info describes a semaphore. [Semaphore.Inspect] and [List] return it.
type Info struct {
	Name       string     // name passed to Open
	Stats      sema.Stats // exact while no process acquires or releases; the counters are 0
	MaxWaiters int        // bound for all processes together; 0: no bound, sema.NoWaiters: no caller may wait
	Holders    []Holder   // oldest first; nil if returned by List
}

// Inspect returns the exact state of the semaphore, and its holders. It asks the kernel
// which of them have ended, with a system call for every process.
func (s *Semaphore) Inspect(ctx context.Context) (Info, error) {
	const op = "inspect"
	leave, err := s.use(ctx, op)
	if err != nil {
		return Info{}, err
	}
	defer leave()
	info, err := s.file.inspect(ctx, true)
	if err != nil {
		return Info{}, s.file.wrapUnlessEnded(ctx, op, err)
	}
	info.Stats.Closed = s.closed.Load()
	return info, nil
}

// wrapUnlessEnded wraps err, unless err is the cause of an ended context.
func (f *file) wrapUnlessEnded(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil && err == context.Cause(ctx) {
		return err
	}
	return f.wrap(op, err)
}

func (f *file) inspect(ctx context.Context, withHolders bool) (info Info, err error) {
	err = f.guarded(func() error {
		held, err := f.heldSlots(ctx)
		if err != nil {
			return err
		}
		if err := f.clearKilled(); err != nil {
			return err
		}
		for word := range held { // as in lockScanned
			f.bitmap[word].And(held[word])
		}
		info = Info{Name: f.name, Stats: statsOf(f.config(), countHeld(held), f.waiting()), MaxWaiters: f.stored().maxWaiters}
		if withHolders {
			info.Holders = f.holders(held)
		}
		return nil
	})
	return info, err
}
