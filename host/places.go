package host

import (
	"time"

	"github.com/sema-go/sema"
)

// A timing contains the durations by which a process detects that other processes were
// killed or stopped, since those cannot notify it. Tests replace it, so that no result
// depends on the speed of the machine.
type timing struct {
	// poll is the interval at which a waiting process polls: not every crash notifies it.
	// Default 40ms.
	poll time.Duration
	// watchAfter is how long the first waiter of the host waits before it watches the
	// processes that hold permits, see watch. Default 1ms.
	watchAfter time.Duration
	// skipAfter is the age of the last poll from which a process counts as stopped.
	// Such a process is skipped until it polls again. Default 150ms.
	skipAfter time.Duration
	// turnBackoff is how long claims do not wait for their turn to scan after a claim has
	// timed out waiting for it, see turnTimeout. Default 1s.
	turnBackoff time.Duration
	// placeBackoff is how long a process that found no place does not search for one.
	// Default 1s.
	placeBackoff time.Duration
}

var defaultTiming = timing{poll: 40 * time.Millisecond, watchAfter: time.Millisecond, skipAfter: 150 * time.Millisecond, turnBackoff: time.Second, placeBackoff: time.Second}

// noPlace stands for the index of a place when there is none.
const noPlace = -1

// takePlace claims a place for this process: the lowest one that no live process has.
// The place is kept until the file is closed. It returns noPlace if no place is left or
// the disk is full, and tries again after [timing.placeBackoff]. A process without a place
// waits by polling alone, and processes that have one are served before it. Its permits
// are locks.
func (f *file) takePlace() int {
	f.placing.Lock()
	defer f.placing.Unlock()
	if own := f.own.Load(); own != noPlace {
		return int(own)
	}
	if isRecent(f.placeless.Load(), f.timing.placeBackoff) {
		return noPlace
	}
	own := f.lockPlace()
	if own == noPlace {
		f.placeless.Store(int64(clock()))
	}
	return own
}

// isRecent reports whether a time by clock, 0 for never, is at most d ago. A clock that was
// set back shows a time of the future, which is not recent.
func isRecent(at int64, d time.Duration) bool {
	elapsed := clock() - time.Duration(at)
	return at != 0 && elapsed >= 0 && elapsed < d
}

func (f *file) lockPlace() int {
	for i := range maxPlaces {
		ok, err := tryLock(f.fd, exclusive, placeLocks+int64(i), 1)
		if err != nil {
			return noPlace
		}
		if !ok {
			continue
		}
		if err := reserve(f.fd, placesAt+int64(i)*placeSize, placeSize); err != nil {
			unlock(f.fd, placeLocks+int64(i), 1)
			return noPlace
		}
		p, incarnation := &f.places[i], f.nextIncarnation()
		p.ticket.Store(0)
		p.queue.Store(0)
		p.incarnation.Store(incarnation) // before a slot has this owner
		f.own.Store(int32(i))
		f.identity.Store(uint64(newOwner(i, incarnation)))
		return i
	}
	return noPlace
}

// publishAt publishes the first waiter of this process. The ticket is visible before
// this process searches for slots again, and a release searches for tickets after it
// has freed slots. So at least one of the two sees the other.
func (f *file) publishAt(i int, w *waiter, waiters int32) {
	p := &f.places[i]
	p.queue.Store(uint64(queueLengthOf(waiters, 0)))
	if p.ticket.Swap(w.ticket) == 0 || f.high() <= i {
		f.raiseHigh(i + 1)
	}
}

// clearAt publishes that this process has no waiters.
func (f *file) clearAt(i int) {
	p := &f.places[i]
	p.queue.Store(0)
	p.ticket.Store(0)
	f.lowerHigh()
}

// admitLocked reports whether a caller of this process may join the queue if at most
// bound callers may wait on the host. The caller holds the queue's mutex.
//
// If callers of several processes join concurrently, exactly as many are admitted as
// bound allows. Each publishes its ticket before it counts, so that of two callers at
// least one sees the other. A caller counts the waiters and the callers with lower
// tickets. A caller with a higher ticket may not have seen this one: awaitDecision
// waits until that caller is admitted or rejected. If this caller is admitted, publishAt
// replaces its ticket in the word by one more waiter, in one store.
func (f *file) admitLocked(ticket uint64, bound int) (admitted bool, err error) {
	if bound == sema.NoWaiters {
		return false, nil
	}
	waiters := f.queue.length.Load()
	own := f.takePlace()
	if own != noPlace {
		f.places[own].beat.Store(int64(clock()))
		f.places[own].queue.Store(uint64(queueLengthOf(waiters, ticket)))
		f.raiseHigh(own + 1)
	}
	if f.ahead(own, ticket) < bound-int(waiters) {
		return true, nil
	}
	if err := f.clearKilled(); err != nil {
		return false, err
	}
	return f.ahead(own, ticket) < bound-int(waiters), nil
}

// ahead returns the number of callers of other processes that wait, or are about to
// join with a lower ticket.
func (f *file) ahead(own int, ticket uint64) (n int) {
	for i := range f.high() {
		if i != own {
			n += f.awaitDecision(i, ticket).before(ticket)
		}
	}
	return n
}

// awaitDecision waits until no caller with a higher ticket is about to join at a place,
// and returns the queue length there. A process takes a microsecond to decide. After
// joinTimeout the process counts as stopped, and its caller as a waiter.
func (f *file) awaitDecision(i int, ticket uint64) queueLength {
	start := clock()
	for pause := 5 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		q := queueLength(f.places[i].queue.Load())
		if !q.joinsAfter(ticket) {
			return q
		}
		if clock()-start > joinTimeout {
			return q + 1
		}
		if alive, err := f.clearIfKilled(i); alive || err != nil {
			time.Sleep(pause)
		}
	}
}

// joinTimeout bounds how long a caller waits for a caller of another process that is
// about to join the queue.
const joinTimeout = time.Second

// clearKilled removes the waiters of killed processes from the queue.
func (f *file) clearKilled() error {
	for i := range f.high() {
		if p := &f.places[i]; p.ticket.Load() == 0 && p.queue.Load() == 0 {
			continue
		}
		if _, err := f.clearIfKilled(i); err != nil {
			return err
		}
	}
	return nil
}

// clearIfKilled clears a place if its process was killed, and reports whether the
// process is alive. A process that takes over the place meanwhile is not affected,
// because it begins by setting the ticket to 0.
func (f *file) clearIfKilled(i int) (alive bool, err error) {
	p := &f.places[i]
	ticket, queue := p.ticket.Load(), p.queue.Load()
	if alive, err = f.alive(i); !alive && err == nil && p.ticket.CompareAndSwap(ticket, 0) {
		p.queue.CompareAndSwap(queue, 0)
	}
	return alive, err
}

// queueFull reports whether as many callers wait as MaxWaiters allows, according to
// shared memory alone. Only admitLocked decides that a caller may wait.
func (f *file) queueFull() (full bool) {
	bound := f.stored().maxWaiters
	if bound <= 0 {
		return bound == sema.NoWaiters
	}
	f.touch(func() {
		if full = f.waiting() >= bound; full && f.clearKilled() == nil {
			full = f.waiting() >= bound
		}
	})
	return full
}

// waiting returns the number of waiters on the host according to shared memory. It
// includes waiters of killed processes that were not noticed yet.
func (f *file) waiting() (n int) {
	if f.own.Load() == noPlace {
		n = int(f.queue.length.Load())
	}
	for i := range f.high() {
		if p := &f.places[i]; p.ticket.Load() != 0 {
			n += queueLength(p.queue.Load()).waiters()
		}
	}
	return n
}

func (f *file) raiseHigh(to int) {
	for {
		high := highMark(f.head.high.Load())
		if f.head.high.CompareAndSwap(uint32(high), uint32(high.raised(to))) {
			return
		}
	}
}

// lowerHigh lowers the high mark to just above the last place with a waiter. This keeps
// the search for waiters short, and empty while no process waits. It changes nothing if
// a process joins meanwhile.
func (f *file) lowerHigh() {
	high := highMark(f.head.high.Load())
	to := high.index()
	for to > 0 && f.vacant(to-1) {
		to--
	}
	if to < high.index() {
		f.head.high.CompareAndSwap(uint32(high), uint32(high.lowered(to)))
	}
}

func (f *file) high() int { return highMark(f.head.high.Load()).index() }

// vacant reports whether no process waits at a place. It clears the place of a process
// that was killed while it was skipped: no search for the first waiter checks such a
// place.
func (f *file) vacant(i int) bool {
	p := &f.places[i]
	if p.ticket.Load() == 0 && p.queue.Load() == 0 {
		return true
	}
	if !f.stopped(p, clock()) {
		return false
	}
	alive, err := f.clearIfKilled(i)
	return !alive && err == nil
}

// stopped reports whether the place's process has not polled for longer than
// [timing.skipAfter].
func (f *file) stopped(p *place, now time.Duration) bool {
	return now-time.Duration(p.beat.Load()) > f.timing.skipAfter
}

// first returns the place to serve next and its ticket: of the processes not stopped,
// the one with the lowest ticket. Its process may have been killed.
func (f *file) first() (at int, ticket uint64) {
	at = noPlace
	high := f.high()
	if high == 0 {
		return noPlace, 0
	}
	now := clock()
	for i := range high {
		p := &f.places[i]
		if t := p.ticket.Load(); t != 0 && (at == noPlace || t < ticket) && !f.stopped(p, now) {
			at, ticket = i, t
		}
	}
	return at, ticket
}

// firstLive returns the first place whose process is alive. It clears the places of
// killed processes before it.
func (f *file) firstLive() (at int, ticket uint64, err error) {
	err = f.guarded(func() error {
		for {
			at, ticket = f.first()
			if at == noPlace {
				return nil
			}
			if alive, err := f.clearIfKilled(at); alive || err != nil {
				return err
			}
		}
	})
	return at, ticket, err
}

func (f *file) alive(i int) (bool, error) {
	if int32(i) == f.own.Load() {
		return true, nil
	}
	return conflict(f.fd, placeLocks+int64(i), 1)
}

// wakeFirst wakes the process to serve next, so that it searches for slots.
func (f *file) wakeFirst() {
	f.touch(func() {
		for f.high() > 0 {
			at, _ := f.first()
			if at == noPlace || f.wake(at) {
				return
			}
			// The process did not sleep: it is about to search, or was killed.
			if alive, err := f.clearIfKilled(at); alive || err != nil {
				return
			}
		}
	})
}

// wakeOther wakes the process to serve next, unless it is this one.
func (f *file) wakeOther() {
	f.touch(func() {
		if at, _ := f.first(); at != noPlace && int32(at) != f.own.Load() {
			f.wake(at)
		}
	})
}

// wakeAll wakes all waiting processes.
func (f *file) wakeAll() {
	for i := range f.high() {
		f.wake(i)
	}
}

// wake wakes the process at a place, also if it is about to sleep, and reports whether
// it slept.
func (f *file) wake(i int) bool {
	word := &f.places[i].word
	word.Add(1)
	return wakeWord(word)
}

// busy reports whether a live caller waits, which a new caller must not overtake.
func (f *file) busy() (bool, error) {
	if f.queue.length.Load() > 0 {
		return true, nil
	}
	high := 0
	if !f.touch(func() { high = f.high() }) {
		return false, ErrDamaged
	}
	if high == 0 {
		return false, nil
	}
	at, _, err := f.firstLive()
	if at == noPlace && err == nil {
		f.touch(f.lowerHigh)
	}
	return at != noPlace, err
}
