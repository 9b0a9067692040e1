package host

import (
	"context"
	"math/bits"
	"time"
)

// A run is a sequence of adjacent slots. A permit consists of one or more runs.
type run struct{ at, n uint32 }

func (r run) offset() int64 { return slotLocks + int64(r.at) }

// masks calls do with the index and mask of each bitmap word that the run covers.
func (r run) masks(do func(word int, mask uint64)) {
	for at, end := r.at, r.at+r.n; at < end; {
		next := min(end, (at/wordBits+1)*wordBits)
		do(int(at/wordBits), (^uint64(0)>>(wordBits-(next-at)))<<(at%wordBits))
		at = next
	}
}

// appendTo appends the numbers of the run's slots.
func (r run) appendTo(slots []int64) []int64 {
	for n := range int64(r.n) {
		slots = append(slots, int64(r.at)+n)
	}
	return slots
}

// weightOf returns the number of slots in the runs.
func weightOf(runs []run) (n int64) {
	for _, r := range runs {
		n += int64(r.n)
	}
	return n
}

// A claimResult is the result of a claim.
type claimResult uint8

const (
	claimed  claimResult = iota
	short                // too few slots are free
	tooLarge             // more than the capacity
	draining
)

// rejects returns the reason why n permits can never be granted while the config is c,
// or short if they can.
func (c config) rejects(n int64) claimResult {
	switch capacity := c.capacity(); {
	case c.draining():
		return draining
	case n > capacity && capacity > 0:
		return tooLarge
	}
	return short
}

// tryClaim claims n slots unless a caller waits.
func (f *file) tryClaim(ctx context.Context, n int64) ([]run, claimResult, error) {
	busy, err := f.busy()
	if err != nil {
		return nil, short, err
	}
	if busy {
		return nil, f.config().rejects(n), nil
	}
	runs, result, err := f.claim(ctx, n)
	if runs == nil {
		f.wakeFirst() // it may have found slots held that this claim had for a moment
	}
	return runs, result, err
}

// claim locks n slots, or none.
//
// Two rules enforce the capacity. First, a slot has at most one owner, and one permit of
// that process (file.mine). Second, a claim is
// valid only if the config it started with has not changed when its slots are locked.
// While slots beyond the capacity are held, a claim is valid only if at most capacity
// slots are locked after it. This suffices: of any set of permits held at one time,
// the last one to lock its slots has seen all the others.
func (f *file) claim(ctx context.Context, n int64) (runs []run, result claimResult, err error) {
	err = f.guarded(func() (err error) {
		runs, result, err = f.claimSlots(ctx, n)
		return err
	})
	if err != nil && runs != nil {
		f.unlockSlots(runs)
		runs = nil
	}
	return runs, result, err
}

func (f *file) claimSlots(ctx context.Context, n int64) ([]run, claimResult, error) {
	for {
		c := f.config()
		if result := c.rejects(n); result != short || n > c.capacity() {
			return nil, result, nil
		}
		runs, err := f.lockSlots(ctx, n, c)
		if runs == nil || err != nil {
			return nil, short, err
		}
		if f.onClaim != nil {
			f.onClaim()
		}
		over, err := f.overCapacity(ctx, c)
		if now := f.config(); err == nil && now == c && !over {
			return runs, claimed, nil
		}
		f.unlockSlots(runs)
		if err != nil || over {
			return nil, short, err
		}
	}
}

// lockSlots finds and locks n slots below the capacity. It returns nil if too few are
// free.
func (f *file) lockSlots(ctx context.Context, n int64, c config) ([]run, error) {
	if n == 1 {
		r, ok, err := f.lockHinted(c)
		if err != nil {
			return nil, err
		}
		if ok {
			return []run{r}, nil
		}
	}
	leave, err := f.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return f.lockScanned(ctx, n, c)
}

// lockHinted takes one slot that is free according to the bitmap. This is the fast
// path: no system call.
//
// A bit is set before its slot is taken and cleared after the slot is returned. So a
// bit may be set without an owner: its process was killed, or is about to take the slot.
// A scan clears the bits of killed processes. A scan may also clear a bit whose process
// is about to take the slot, and may take a slot whose bit is about to be cleared. A held
// slot without a bit costs the next claim of that slot one try, and that claim sets the
// bit again.
func (f *file) lockHinted(c config) (r run, ok bool, err error) {
	capacity := c.capacity()
	for base := int64(0); base < capacity; base += wordBits {
		word := base / wordBits
		below := slotsBelow(capacity, base)
		for free := below &^ (f.bitmap[word].Load() | f.mine[word].Load()); free != 0; free &= free - 1 {
			bit := free & -free
			if f.mine[word].Or(bit)&bit != 0 {
				continue
			}
			if f.bitmap[word].Or(bit)&bit != 0 {
				f.mine[word].And(^bit)
				continue
			}
			r := run{uint32(base) + uint32(bits.TrailingZeros64(bit)), 1}
			ok, err := f.takeRun(r)
			if ok {
				return r, true, nil
			}
			if err != nil {
				f.bitmap[word].And(^bit)
			}
			f.mine[word].And(^bit)
			if err != nil {
				return run{}, false, err
			}
		}
	}
	return run{}, false, nil
}

// scans is the maximum number of scans of lockScanned. It scans again if a claim
// without a scan locked a slot first.
const scans = 8

// lockScanned takes n slots that are free according to their owners, including those of
// killed processes.
func (f *file) lockScanned(ctx context.Context, n int64, c config) ([]run, error) {
	for range scans {
		held, err := f.heldSlots(ctx)
		if err != nil {
			return nil, err
		}
		for word := range held {
			f.bitmap[word].And(held[word])
		}
		wanted := freeRuns(held, n, c.capacity())
		if weightOf(wanted) < n {
			return nil, nil
		}
		locked, err := f.lockRuns(wanted)
		if locked || err != nil {
			return wanted, err
		}
	}
	return nil, nil
}

// lockRuns locks all of the runs or none.
func (f *file) lockRuns(runs []run) (bool, error) {
	for i, r := range runs {
		ok, err := f.lockRun(r)
		if !ok || err != nil {
			f.unlockSlots(runs[:i])
			return false, err
		}
	}
	return true, nil
}

func (f *file) lockRun(r run) (bool, error) {
	if !f.markMine(r) {
		return false, nil
	}
	ok, err := f.takeRun(r)
	if !ok || err != nil {
		f.unmarkMine(r)
		return false, err
	}
	r.masks(func(word int, mask uint64) { f.bitmap[word].Or(mask) })
	return true, nil
}

// markMine claims the run within this process, because owners do not distinguish the
// permits of a process.
func (f *file) markMine(r run) (ok bool) {
	ok = true
	marked := run{at: r.at}
	r.masks(func(word int, mask uint64) {
		if !ok {
			return
		}
		if before := f.mine[word].Or(mask); before&mask != 0 {
			f.mine[word].And(^(mask &^ before))
			ok = false
			return
		}
		marked.n += uint32(bits.OnesCount64(mask))
	})
	if !ok {
		f.unmarkMine(marked)
	}
	return ok
}

func (f *file) unmarkMine(r run) {
	r.masks(func(word int, mask uint64) { f.mine[word].And(^mask) })
}

// unlockSlots frees slots. It clears the marks in file.mine last: until then no claim
// of this process may lock slots that are about to be unlocked.
func (f *file) unlockSlots(runs []run) { f.unlockOn(f.fd, runs) }

// unlockOn frees slots whose locks, if they are held by locks, belong to the descriptor fd.
// If the file is damaged, what it shows about them cannot be read: it grants nothing.
func (f *file) unlockOn(fd int, runs []run) {
	for _, r := range runs {
		intact := f.touch(func() {
			f.eraseRecord(r)
			f.returnRun(fd, r)
			r.masks(func(word int, mask uint64) { f.bitmap[word].And(^mask) })
		})
		if !intact {
			unlock(fd, r.offset(), int64(r.n))
		}
		f.unmarkMine(r)
	}
}

// freeRuns selects n slots below capacity that are not held, or fewer if there are not
// enough. Adjacent slots form one run.
func freeRuns(held []uint64, n, capacity int64) (runs []run) {
	for at := int64(0); at < capacity && n > 0; at++ {
		word := held[at/wordBits]
		if word == ^uint64(0) {
			at |= wordBits - 1
			continue
		}
		if word&(1<<(at%wordBits)) != 0 {
			continue
		}
		n--
		if last := len(runs) - 1; last >= 0 && int64(runs[last].at+runs[last].n) == at {
			runs[last].n++
		} else {
			runs = append(runs, run{uint32(at), 1})
		}
	}
	return runs
}

func countHeld(held []uint64) (n int64) {
	for _, word := range held {
		n += int64(bits.OnesCount64(word))
	}
	return n
}

// overCapacity reports whether more slots are held than the capacity. This is possible
// only while the config is unsettled. If no slot beyond the capacity is held,
// overCapacity clears the unsettled flag.
func (f *file) overCapacity(ctx context.Context, c config) (bool, error) {
	if c&unsettled == 0 {
		return false, nil
	}
	held, err := f.heldSlots(ctx)
	if err != nil {
		return true, err
	}
	if countHeld(held) > c.capacity() {
		return true, nil
	}
	beyond := false
	run{uint32(c.capacity()), uint32(int64(len(held)*wordBits) - c.capacity())}.masks(func(word int, mask uint64) {
		beyond = beyond || held[word]&mask != 0
	})
	if !beyond {
		f.head.config.CompareAndSwap(uint64(c), uint64(c.changed(c.capacity(), c&drainingFlag)))
	}
	return false, nil
}

// slotsBelow returns a mask of the slots below the capacity in the word that starts
// with slot base.
func slotsBelow(capacity, base int64) uint64 {
	return ^uint64(0) >> (wordBits - min(capacity-base, wordBits))
}

// bitmapHasFree reports whether a slot is free according to the bitmap.
func (f *file) bitmapHasFree() (free bool) {
	capacity := f.config().capacity()
	f.touch(func() {
		for base := int64(0); base < capacity && !free; base += wordBits {
			free = slotsBelow(capacity, base)&^f.bitmap[base/wordBits].Load() != 0
		}
	})
	return free
}

// turnTimeout bounds how long a claim waits for its turn to scan. A turn takes
// microseconds, unless a process is stopped in the middle of one. For
// [timing.turnBackoff] after a timeout, claims do not wait for their turn.
const turnTimeout = 100 * time.Millisecond

// turn serialises scans, so that two claims of several slots cannot make each other
// fail by locking a part each. The capacity does not depend on it, and a stopped
// process must not block the others, so a claim proceeds without a turn after
// turnTimeout.
func (f *file) turn(ctx context.Context) (leave func(), err error) {
	select {
	case f.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	leaveProcess := func() { <-f.turns }
	deadline := time.Now().Add(turnTimeout)
	if isRecent(f.turnMissed.Load(), f.timing.turnBackoff) {
		deadline = time.Time{}
	}
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		ok, err := tryLock(f.fd, exclusive, turnLock, 1)
		switch {
		case err != nil:
			leaveProcess()
			return nil, err
		case ok:
			f.turnMissed.Store(0)
			return func() { unlock(f.fd, turnLock, 1); leaveProcess() }, nil
		case time.Now().After(deadline):
			if !deadline.IsZero() {
				f.turnMissed.Store(int64(clock()))
			}
			return leaveProcess, nil
		case ctx.Err() != nil:
			leaveProcess()
			return nil, context.Cause(ctx)
		}
		time.Sleep(pause)
	}
}
