package host

import "time"

// A pace is the durations by which processes notice others that cannot notify
// them. Tests replace it, so that no result depends on the speed of the machine.
type pace struct {
	// poll is the interval at which a waiting process looks by itself: nothing
	// notifies it of a crash. Default 40ms.
	poll time.Duration
	// passAfter is the age of the last look at which a process counts as stopped,
	// and is passed over until it looks again. Default 150ms.
	passAfter time.Duration
	// turnDistrust is how long claims do not wait for a turn after one of them has
	// waited in vain. Default 1s.
	turnDistrust time.Duration
}

var usualPace = pace{poll: 40 * time.Millisecond, passAfter: 150 * time.Millisecond, turnDistrust: time.Second}

// noPlace is the index of no place.
const noPlace = -1

// takePlace has this process own a place: the lowest that no living process
// has. It is kept until the file is closed. Without one, when there is none
// left or no room for it on the disk, the process waits by looking alone, and
// those who have one are served before it.
func (f *file) takePlace() int {
	if own := f.own.Load(); own != noPlace {
		return int(own)
	}
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
		f.places[i].ticket.Store(0)
		f.own.Store(int32(i))
		return i
	}
	return noPlace
}

// standAt shows the host who waits first in this process. The ticket is out
// before anybody looks for slots again on its behalf, and whoever frees some
// looks for tickets afterwards: one of the two sees the other.
func (f *file) standAt(i int, w *waiter, waiters int32) {
	p := &f.places[i]
	p.waiters.Store(uint32(waiters))
	p.ticket.Store(w.ticket)
	f.raiseHigh(uint32(i) + 1)
}

// stepOut takes this process out of the line.
func (f *file) stepOut(i int) {
	p := &f.places[i]
	p.waiters.Store(0)
	p.ticket.Store(0)
	f.lowerHigh()
}

func (f *file) raiseHigh(to uint32) {
	for {
		high := f.head.high.Load()
		if high >= to || f.head.high.CompareAndSwap(high, to) {
			return
		}
	}
}

// lowerHigh keeps the line short, and at 0 when nobody waits. Somebody who
// stood in line meanwhile, and may have been overlooked, is made up for.
func (f *file) lowerHigh() {
	high := f.high()
	to := high
	for to > 0 && f.vacant(to-1) {
		to--
	}
	if to == high || !f.head.high.CompareAndSwap(uint32(high), uint32(to)) {
		return
	}
	for i := high; i > to; i-- {
		if f.places[i-1].ticket.Load() != 0 {
			f.raiseHigh(uint32(i))
			f.wakeFirst()
			return
		}
	}
}

func (f *file) high() int { return int(min(f.head.high.Load(), maxPlaces)) }

// vacant reports whether nobody stands at a place. One who died when passed
// over still seems to: no search for the first comes by there.
func (f *file) vacant(i int) bool {
	p := &f.places[i]
	ticket := p.ticket.Load()
	if ticket == 0 {
		return true
	}
	if !f.stopped(p, clock()) {
		return false
	}
	alive, err := f.alive(i)
	return !alive && err == nil && p.ticket.CompareAndSwap(ticket, 0)
}

// stopped reports whether the place's process has not looked for so long that
// it cannot be running.
func (f *file) stopped(p *place, now time.Duration) bool {
	return now-time.Duration(p.beat.Load()) > f.pace.passAfter
}

// first is the place whose turn it is: of those not stopped, the one with the
// lowest ticket. It may be a dead process's.
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

// living is first, but a living process's; the dead are put out of the line.
func (f *file) living() (at int, ticket uint64, err error) {
	err = f.guarded(func() error {
		for {
			at, ticket = f.first()
			if at == noPlace {
				return nil
			}
			alive, err := f.alive(at)
			if alive || err != nil {
				return err
			}
			f.places[at].ticket.CompareAndSwap(ticket, 0)
		}
	})
	return at, ticket, err
}

func (f *file) alive(i int) (bool, error) {
	if int32(i) == f.own.Load() {
		return true, nil
	}
	_, _, locked, err := conflict(f.fd, placeLocks+int64(i), 1)
	return locked, err
}

// wakeFirst has the process whose turn it is look for slots.
func (f *file) wakeFirst() {
	f.touch(func() {
		for f.head.high.Load() > 0 {
			at, ticket := f.first()
			if at == noPlace || f.nudge(at) {
				return
			}
			// It was not asleep: on its way to look, or dead.
			if alive, err := f.alive(at); alive || err != nil {
				return
			}
			f.places[at].ticket.CompareAndSwap(ticket, 0)
		}
	})
}

// wakeAll has everybody in line look.
func (f *file) wakeAll() {
	for i := range f.high() {
		f.nudge(i)
	}
}

// nudge ends the sleep of the process at a place, also one that is about to
// begin, and reports whether it slept.
func (f *file) nudge(i int) bool {
	word := &f.places[i].word
	word.Add(1)
	return wakeWord(word)
}

// busy reports whether somebody alive waits, whom a newcomer must not overtake.
func (f *file) busy() (bool, error) {
	if f.line.length.Load() > 0 {
		return true, nil
	}
	high := 0
	if !f.touch(func() { high = f.high() }) {
		return false, ErrDamaged
	}
	if high == 0 {
		return false, nil
	}
	at, _, err := f.living()
	if at == noPlace && err == nil {
		f.touch(f.lowerHigh)
	}
	return at != noPlace, err
}
