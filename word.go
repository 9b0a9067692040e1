package sema

// MaxCapacity is the largest number of permits a semaphore can have. A larger
// capacity is taken to mean "unlimited" and becomes this one.
const MaxCapacity int64 = 1<<61 - 1

// The word of a core is the whole state of a semaphore no caller waits for: how many permits
// are free, and two flags that send callers to the lock.
//
//	 63       62     61                                0
//	┌─────────┬──────┬─────────────────────────────────┐
//	│ waiting │ slow │ free permits                    │
//	└─────────┴──────┴─────────────────────────────────┘
//
//	waiting  a caller is queued: an arrival queues behind, a release serves
//	slow     closed, draining, paying debt, starving, or watched for idleness
//
// The states and who moves between them:
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
// Without flags the word is changed by any goroutine, without a lock. With a flag,
// free may still rise without the lock (give adds first and looks afterwards)
// but, the barging of Unfair apart, only the holder of core.mu lowers it.
//
// No wake-up is lost. A waiter raises the waiting flag with a CAS from a word
// in which its permits were not free. A release that changed the word before
// that makes the CAS fail, so the waiter looks again; one that comes after
// sees the flag in the value its own add returned, and goes to the lock, which
// the waiter holds until it stands in the queue.
//
// What a holder did happens before what the next one does: sync/atomic
// operations are sequentially consistent, so the give of one synchronizes with
// the take of the other whether it reads that give or a later value of the
// word, and a hand-off adds the waiter's token channel to the chain.
const (
	waitingFlag uint64 = 1 << 63
	slowFlag    uint64 = 1 << 62
	freeMask           = slowFlag - 1
	maxCount           = uint64(MaxCapacity)
)

// take takes n permits if no flag is up and they are free. It tries once, so
// that it stays small enough to be inlined; takeAgain is for the other tries.
//
// n must be at most maxCount. Then one comparison decides: with a flag up or
// too little free, the difference is beyond maxCount.
func (c *core) take(n uint64) bool {
	old := c.word.Load()
	return old-n <= maxCount && c.word.CompareAndSwap(old, old-n)
}

// takeAgain is take for a caller that may have lost a race: false means that a
// flag is up or too little is free.
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

// barge takes n permits past a queue; only the slow flag stops it.
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

// takeFlagged takes n permits whatever the flags say, for the holder of
// core.mu who serves the queue.
func (c *core) takeFlagged(n uint64) bool {
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

// takeUpTo takes as many as are free, n at most, whatever the flags say.
func (c *core) takeUpTo(n uint64) uint64 {
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
