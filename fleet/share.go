package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// shed gives back what is beyond the capacity and not in use, which can only
// become less once the capacity was lowered.
func (k *keeper) shed(ctx context.Context, capacity int64) error {
	k.mu.Lock()
	surplus := k.held > capacity
	k.mu.Unlock()
	if !surplus {
		return nil
	}
	if err := k.see(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.giveBack(k.held - max(capacity, k.seen.inUse))
	return nil
}

// giveBack gives some of the blocks back, the youngest first. The mutex is held.
func (k *keeper) giveBack(weight int64) {
	for weight > 0 && len(k.blocks) > 0 {
		last := k.blocks[len(k.blocks)-1]
		k.blocks = k.blocks[:len(k.blocks)-1]
		if last.Weight() > weight {
			keep, rest, err := last.Split(last.Weight() - weight)
			if err != nil {
				return // lost meanwhile
			}
			k.blocks = append(k.blocks, leasedBlock{keep, last.since})
			last.Permit = rest
		}
		weight -= last.Weight()
		k.held -= last.Weight()
		last.Release()
	}
}

// demand asks for what is missing, one block at a time.
func (k *keeper) demand(recalled bool, last protocol.Reply) {
	k.mu.Lock()
	defer k.mu.Unlock()
	missing, ready := -k.free(), k.ready(last)
	if !recalled && missing > -ready/2 {
		missing += ready
	}
	least := max(1, k.seen.inUse-k.held) // to cover what is in use
	if k.seen.first > k.held {
		least = max(least, k.seen.first)
	}
	switch {
	case k.ask != nil && (missing <= 0 || k.ask.least != least):
		k.ask.cancel() // at the end of it the keeper looks again
		return
	case k.ask != nil || missing <= 0:
		return
	}
	ctx, cancel := context.WithCancel(k.life)
	k.ask = &asking{least, cancel}
	k.region.workers.Go(func() {
		defer cancel()
		k.asked(k.global.lease(ctx, max(missing, least), least))
	})
}

// asked is when a block has come, or not.
func (k *keeper) asked(p sema.Permit, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ask = nil
	switch {
	case err == nil && k.life.Err() != nil:
		p.Release()
	case err == nil:
		now := k.region.global.clock()
		k.blocks = append(k.blocks, leasedBlock{p, now})
		k.look(now)
	}
	if err == nil || errors.Is(err, context.Canceled) {
		k.wake() // or it was refused, and the next look is soon enough
	}
}

// stop ends it. What of the blocks is in use goes back when nobody trusts in it
// any more.
func (k *keeper) stop() {
	k.end()
	k.stepping.Lock()
	defer k.stepping.Unlock()
	if !k.begun.Load() {
		return
	}
	k.global.mu.Lock()
	k.global.lender = nil
	k.global.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if k.setCapacity(ctx, 0) == nil && k.see(ctx) == nil {
		k.mu.Lock()
		k.giveBack(k.held - k.seen.inUse)
		k.mu.Unlock()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	rest := k.blocks
	k.blocks, k.held = nil, 0
	time.AfterFunc(micros(k.ttl*2/3), func() {
		for _, p := range rest {
			p.Release()
		}
	})
}

// lease takes a block for somebody who lends it on.
func (s *Semaphore) lease(ctx context.Context, weight, least int64) (sema.Permit, error) {
	return s.acquire(ctx, "lease", protocol.Op{Verb: protocol.Acquire, Weight: weight, Least: least, Pooled: true})
}

// A lender lends permits on, and is told what the engine says of them, with the
// semaphore's mutex held.
type lender interface{ heard(protocol.Reply) }
