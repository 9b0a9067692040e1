package sqlitestore

import (
	"context"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

const (
	// longestTick and shortestTick bound how often the writer looks for sessions that
	// have expired.
	longestTick  = time.Second
	shortestTick = 10 * time.Millisecond
	// readAtOnce is how many semaphores that were not used since the file was opened
	// one tick reads.
	readAtOnce = 100
)

// tick moves the clocks of semaphores on to which no client speaks, so that what
// expired sessions held is free before a client asks.
func (w *writer) tick() {
	if w.still {
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
		if len(group) > readAtOnce {
			break
		}
		group = append(group, w.tickOf(name))
	}
	if len(group) > 0 {
		w.serve(group)
	}
}

// tickOf returns the request that moves the clock of one semaphore on. Its error, a
// full disk for example, is of no interest: the next tick tries again.
func (w *writer) tickOf(name string) *request {
	return &request{
		ctx: context.Background(), name: name, ended: make(chan error, 1),
		act: func(now protocol.Micros, k *kept) error {
			if k.state != nil {
				k.state.Tick(now)
			}
			return nil
		},
	}
}

// untilTick returns how long the writer waits for the next tick.
func (w *writer) untilTick() time.Duration {
	next := longestTick
	if w.still {
		return next
	}
	if len(w.unread) > 0 {
		return shortestTick
	}
	for _, k := range w.live {
		next = min(next, time.Duration(k.state.TickEvery())*time.Microsecond)
	}
	return max(next, shortestTick)
}
