package sema

// MaxCapacity is the largest capacity of a semaphore. A larger capacity means
// unlimited and is reduced to MaxCapacity.
const MaxCapacity int64 = 1<<61 - 1

// core.word is the whole state of a semaphore while no caller waits: the number of
// free permits, and two flags that send callers to the lock.
//
//	 63       62     61                                0
//	┌─────────┬──────┬─────────────────────────────────┐
//	│ waiting │ slow │ free permits                    │
//	└─────────┴──────┴─────────────────────────────────┘
//
//	waiting  a caller is queued: arrivals queue behind it, a release serves it
//	slow     closed, draining, paying debt, starving, or a caller waits for idleness
//
// The states and the transitions between them:
//
//	       take: CAS free→free−n            (no flag, free ≥ n)
//	     ┌──────────────────────┐
//	     ▼                      │
//	┌─────────┐  give: add n    │        ┌──────────────────────┐
//	│  quiet  │─────────────────┘        │       flagged        │
//	│ flags=0 │                          │ every take and every │
//	│         │── enter: CAS in a flag ─▶│ give ends under      │
//	│         │   (mutex held)           │ core.mu, in settle   │
//	│         │◀─ settle: clear flags ───│                      │
//	└─────────┘   (mutex held)           └──────────────────────┘
//
// While no flag is set, any goroutine changes the word without a lock. While a flag
// is set, free may still increase without the lock, because give adds first and
// reads the flags afterwards. Only the holder of core.mu decreases free then, except
// for the barging of Unfair.
//
// No wake-up is lost. A waiter sets the waiting flag with a CAS from a word in
// which its permits were not free. A release that changed the word before that
// makes the CAS fail, and the waiter checks again. A release after the CAS sees
// the flag in the value that its own add returned, and locks core.mu. The waiter
// holds core.mu until it is queued.
//
// The actions of a holder happen before those of the next one. Operations of
// sync/atomic are sequentially consistent. So the give of one synchronizes with the
// take of the other, whether take reads that give or a later value of the word. A
// hand-off adds the waiter's token channel to the chain.
const (
	waitingFlag uint64 = 1 << 63
	slowFlag    uint64 = 1 << 62
	freeMask           = slowFlag - 1
	maxCount           = uint64(MaxCapacity)
)

// take takes n permits if no flag is set and they are free. It tries once, so that
// it is small enough to be inlined; takeAgain retries.
//
// n must be at most maxCount. Then one comparison decides: if a flag is set or too
// few permits are free, the difference exceeds maxCount.
func (c *core) take(n uint64) bool {
	old := c.word.Load()
	return old-n <= maxCount && c.word.CompareAndSwap(old, old-n)
}

// takeAgain takes n permits like take, and retries after a lost race. It returns
// false if a flag is set or too few permits are free.
func (c *core) takeAgain(n uint64) bool {
	for {
		old := c.word.Load()
		if old-n > maxCount {
			return false
		}
		if c.word.CompareAndSwap(old, old-n) {
			return true
		}
	}
}

// barge takes n permits ahead of the queue, if they are free and the slow flag is not
// set. The waiting flag does not matter.
func (c *core) barge(n uint64) bool {
	for {
		old := c.word.Load()
		if old&slowFlag != 0 || old&freeMask < n {
			return false
		}
		if c.word.CompareAndSwap(old, old-n) {
			return true
		}
	}
}

// takeFlaggedLocked takes n permits, regardless of the flags. The holder of mu uses
// it to serve the queue.
func (c *core) takeFlaggedLocked(n uint64) bool {
	for {
		old := c.word.Load()
		if old&freeMask < n {
			return false
		}
		if c.word.CompareAndSwap(old, old-n) {
			return true
		}
	}
}

// takeUpToLocked takes as many permits as are free, at most n, regardless of the
// flags.
func (c *core) takeUpToLocked(n uint64) uint64 {
	for {
		old := c.word.Load()
		got := min(old&freeMask, n)
		if got == 0 || c.word.CompareAndSwap(old, old-got) {
			return got
		}
	}
}

func (c *core) free() uint64 { return c.word.Load() & freeMask }

func (c *core) raise(flags uint64) { c.word.Or(flags) }

func (c *core) lower(flags uint64) { c.word.And(^flags) }

func (c *core) has(flag uint64) bool { return c.word.Load()&flag != 0 }
