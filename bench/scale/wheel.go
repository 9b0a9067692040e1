package main

import (
	"math/bits"

	"github.com/sema-go/sema/fleet/protocol"
)

// An event happens at a simulated time. It is a value: millions of events are
// created each simulated second, and none is allocated.
type event struct {
	at         protocol.Micros
	lease      protocol.Seq // holdEnd: the block of the permit
	index      int32        // of an instance, a link, a message or a fault, depending on kind
	generation uint32       // of the link or the instance: an event for an earlier one is void; faultChanges: 0 begins, 1 ends
	next       int32        // in its slot
	kind       kind
}

// A kind is what happens, and what index refers to.
type kind uint8

const (
	arrival        kind = iota // instance: a caller arrives
	holdEnd                    // instance: a caller releases its permit
	timerFires                 // link: its timer
	notified                   // link: the store has sent a notification
	requestArrives             // message: it arrives at the store
	replyArrives               // message: its reply arrives
	faultChanges               // fault: it begins or ends
	sampleDue                  // no index: record a sample
)

// A wheel is a timing wheel: the future events in the order of time.
// Simultaneous events keep the order in which they were scheduled, which makes
// a run repeatable. Time is counted in whole microseconds. One slot per near
// microsecond makes schedule and pop O(1), where a heap would need seventeen
// comparisons.
type wheel struct {
	now       protocol.Micros
	base      protocol.Micros // slots are for the times from base up to base+wheelSpan
	slots     []slot
	occupied  [wheelSpan / 64]uint64 // a bit for each slot that is not empty
	pool      []event
	freeEvent int32 // index of the first unused event of the pool; -1: none
	far       []event
}

type slot struct{ first, last int32 }

// wheelSpan is the time that the slots cover: long enough for most events,
// short enough that the slots stay in the processor's cache.
const wheelSpan = 1 << 17

func newWheel() *wheel {
	w := &wheel{slots: make([]slot, wheelSpan), freeEvent: -1}
	for i := range w.slots {
		w.slots[i] = slot{-1, -1}
	}
	return w
}

// schedule adds an event at its time, or now if that has passed.
func (w *wheel) schedule(e event) {
	e.at = max(e.at, w.now)
	if e.at >= w.base+wheelSpan {
		w.far = append(w.far, e)
		return
	}
	i := w.freeEvent
	if i < 0 {
		i = int32(len(w.pool))
		w.pool = append(w.pool, event{})
	} else {
		w.freeEvent = w.pool[i].next
	}
	e.next = -1
	w.pool[i] = e
	at := e.at - w.base
	s := &w.slots[at]
	if s.first < 0 {
		s.first = i
		w.occupied[at/64] |= 1 << (at % 64)
	} else {
		w.pool[s.last].next = i
	}
	s.last = i
}

// pop advances the time and returns the next event, if there is one before the
// end.
func (w *wheel) pop(end protocol.Micros) (event, bool) {
	for w.now < end {
		if w.now == w.base+wheelSpan {
			w.advance()
		}
		at := w.now - w.base
		left := w.occupied[at/64] >> (at % 64)
		if left == 0 { // skip to the next word
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

// first removes and returns the first event of a slot.
func (w *wheel) first(at protocol.Micros) event {
	s := &w.slots[at]
	i := s.first
	e := w.pool[i]
	s.first = e.next
	if e.next < 0 {
		w.occupied[at/64] &^= 1 << (at % 64)
	}
	w.pool[i].next = w.freeEvent
	w.freeEvent = i
	return e
}

// advance moves the slots on, and schedules the far events that have become
// near.
func (w *wheel) advance() {
	w.base += wheelSpan
	far := w.far
	w.far = w.far[:0] // schedule appends behind what is read
	for _, e := range far {
		w.schedule(e)
	}
}
