package sqlitestore

import (
	"context"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

const (
	// maxTick and minTick bound the interval at which the writer checks for expired
	// sessions.
	maxTick = time.Second
	minTick = 10 * time.Millisecond
	// maxRestoresPerTick is the number of semaphores that one tick reads from the file,
	// of those not used since the file was opened.
	maxRestoresPerTick = 100
)

// tick advances the clocks of semaphores without requests, so that permits of expired
// sessions are released before a client asks.
func (w *writer) tick() {
	if w.manualClock {
		return
	}
	var group []*request
	for name, k := range w.live {
		if every := k.state.TickEvery(); every > 0 && time.Since(k.ticked) >= time.Duration(every)*time.Microsecond {
			k.ticked = time.Now()
			group = append(group, w.tickOf(name))
		}
	}
	for name := range w.unread {
		if len(group) > maxRestoresPerTick {
			break
		}
		group = append(group, w.tickOf(name))
	}
	if len(group) > 0 {
		w.serve(group)
	}
}

// tickOf returns a request that advances the clock of one semaphore. Its error, for
// example a full disk, is ignored: the next tick tries again.
func (w *writer) tickOf(name string) *request {
	return &request{
		ctx: context.Background(), name: name, ended: make(chan error, 1),
		act: func(now protocol.Micros, k *entry) error {
			if k.state != nil {
				k.state.Tick(now)
			}
			return nil
		},
	}
}

// untilTick returns the time until the next tick.
func (w *writer) untilTick() time.Duration {
	next := maxTick
	if w.manualClock {
		return next
	}
	if len(w.unread) > 0 {
		return minTick
	}
	for _, k := range w.live {
		next = min(next, time.Duration(k.state.TickEvery())*time.Microsecond)
	}
	return max(next, minTick)
}
