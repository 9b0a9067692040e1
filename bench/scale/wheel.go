package main

import (
	"math/bits"

	"github.com/sema-go/sema/fleet/protocol"
)

// An event is something that will happen. It is a value: millions of them are
// made each simulated second, and none is allocated.
type event struct {
	at    protocol.Micros
	lease protocol.Seq // holdEnds: of which block the permit is
	who   int32        // an index: of an instance, a link, a letter or a fault, as the kind says
	life  uint32       // of whom: what was meant for an earlier life is void
	next  int32        // in its slot
	kind  kind
}

// A kind says what happens, and what who is.
type kind uint8

const (
	arrives   kind = iota // instance: somebody wants a permit
	holdEnds              // instance: somebody is done with one
	looks                 // link: a timer
	hinted                // link: the engine has news
	delivered             // letter: it is at the engine
	answered              // letter: its answer is back
	strikes               // fault: it begins or ends
	samples               // nobody: write down how things are
)

// A wheel is the events to come, in the order of time; those of one moment come
// in the order in which they were filed, which makes a run repeatable. Time is
// counted in whole microseconds, so a slot for each of those that are near
// makes filing and taking O(1), where a heap would compare seventeen times.
type wheel struct {
	now   protocol.Micros
	base  protocol.Micros // slots are for the moments from base up to base+turn
	slots []slot
	taken [turn / 64]uint64 // a bit for each slot that is not empty
	pool  []event
	spare int32 // the first of the pool's unused events, -1 if there is none
	far   []event
}

type slot struct{ first, last int32 }

// turn is the time that the slots cover: long enough that most events fall into
// it, short enough that the slots stay in the processor's cache.
const turn = 1 << 17

func newWheel() *wheel {
	w := &wheel{slots: make([]slot, turn), spare: -1}
	for i := range w.slots {
		w.slots[i] = slot{-1, -1}
	}
	return w
}

// file has an event happen at its time, or now if that has passed.
func (w *wheel) file(e event) {
	e.at = max(e.at, w.now)
	if e.at >= w.base+turn {
		w.far = append(w.far, e)
		return
	}
	i := w.spare
	if i < 0 {
		i = int32(len(w.pool))
		w.pool = append(w.pool, event{})
	} else {
		w.spare = w.pool[i].next
	}
	e.next = -1
	w.pool[i] = e
	at := e.at - w.base
	s := &w.slots[at]
	if s.first < 0 {
		s.first = i
		w.taken[at/64] |= 1 << (at % 64)
	} else {
		w.pool[s.last].next = i
	}
	s.last = i
}

// take is the next event, if there is one before the end. Time passes.
func (w *wheel) take(end protocol.Micros) (event, bool) {
	for w.now < end {
		if w.now == w.base+turn {
			w.revolve()
		}
		at := w.now - w.base
		left := w.taken[at/64] >> (at % 64)
		if left == 0 { // on to the next word
			w.now += 64 - at%64
			continue
		}
		w.now += protocol.Micros(bits.TrailingZeros64(left))
		if w.now < end {
			return w.first(w.now - w.base), true
		}
	}
	w.now = end
	return event{}, false
}

// first takes the first event out of a slot.
func (w *wheel) first(at protocol.Micros) event {
	s := &w.slots[at]
	i := s.first
	e := w.pool[i]
	s.first = e.next
	if e.next < 0 {
		w.taken[at/64] &^= 1 << (at % 64)
	}
	w.pool[i].next = w.spare
	w.spare = i
	return e
}

// revolve moves the slots on, and files what has come near.
func (w *wheel) revolve() {
	w.base += turn
	far := w.far
	w.far = w.far[:0] // file appends behind what is read
	for _, e := range far {
		w.file(e)
	}
}
