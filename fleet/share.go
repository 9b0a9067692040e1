package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A share is what a region has of a semaphore, and what is known of its use.
// The keeper's mutex guards it.
type share struct {
	inUse, wanted, first int64           // at the regional semaphore, as last seen
	low                  int64           // the least that was free since idle
	idle                 protocol.Micros // since when low is noted
	settled              bool            // there was nothing to give back at the last look

	blocks  []leasedBlock   // the oldest first
	held    int64           // what they weigh
	trusted protocol.Micros // until when they surely are held, as of looked
	looked  protocol.Micros
	ask     *asking // nil: none
}

// A leasedBlock is a permit of the global semaphore.
type leasedBlock struct {
	sema.Permit
	since protocol.Micros
}

// An asking is a block on its way.
type asking struct {
	least  int64
	cancel context.CancelFunc
}

// note notes what was seen.
func (s *share) note(r protocol.Reply) {
	s.inUse, s.wanted, s.first = r.InUse, r.Wanted, r.First
	s.low = min(s.low, s.free())
}

// free is what is neither used nor wanted; less than 0 is missing.
func (s *share) free() int64 { return s.held - s.inUse - s.wanted }

// ready is how much the region would like to have free: what is needed before
// more of it could come.
func (s *share) ready(last protocol.Reply) int64 { return max(last.Cushion(s.inUse), s.held/32) }

// look forgets the blocks that were lost, and notes for how long the others are
// held.
func (s *share) look(now protocol.Micros) {
	s.looked, s.trusted, s.held = now, 0, 0
	s.blocks = slices.DeleteFunc(s.blocks, func(b leasedBlock) bool { return b.Err() != nil })
	for i, b := range s.blocks {
		lease, _ := LeaseOf(b.Permit)
		until := now + protocol.Micros(lease.Left.Microseconds())
		if i == 0 || until < s.trusted {
			s.trusted = until
		}
		s.held += b.Weight()
	}
}

// lately is how long something has to be free before a region gives it back
// though nobody waits for it: some round trips around the world, so that it is
// not asked for again the moment it is gone.
const lately = protocol.Micros(250_000)

// target is what the regional capacity is to be.
func (s *share) target(now, quantum, recalled protocol.Micros, last protocol.Reply) int64 {
	s.look(now)
	switch {
	case s.first > s.held:
		return min(s.held, s.inUse) // nobody holds what others wait for while it waits for more
	case recalled != 0:
		return s.keepRecalled(now, quantum, recalled, last.Share)
	case now-s.idle < lately:
		return s.held
	}
	surplus := max(0, s.low-s.ready(last))
	s.low, s.idle = s.free()-surplus, now
	return s.held - surplus
}

// keepRecalled is what may be lent while other regions wait: an even share, or
// what it has for less than a quantum if that is more; without half of what is
// free of it, and half of that again with each look.
func (s *share) keepRecalled(now, quantum, recalled protocol.Micros, even int64) int64 {
	young := int64(0)
	for _, b := range s.blocks {
		if now < max(recalled, b.since)+quantum {
			young += b.Weight()
		}
	}
	keep := max(young, min(even, s.held))
	if free := keep - s.inUse - s.wanted; free > 0 {
		keep -= (free + 1) / 2
	}
	return keep
}

// giveBack gives some of the blocks back, the youngest first.
func (s *share) giveBack(weight int64) {
	for weight > 0 && len(s.blocks) > 0 {
		last := s.blocks[len(s.blocks)-1]
		s.blocks = s.blocks[:len(s.blocks)-1]
		s.held -= last.Weight()
		if last.Weight() > weight {
			if keep, rest, err := last.Split(last.Weight() - weight); err == nil {
				s.blocks = append(s.blocks, leasedBlock{keep, last.since})
				s.held += keep.Weight()
				last.Permit = rest
			}
		}
		weight -= last.Weight()
		last.Release()
	}
}

// shed gives back what is beyond the capacity and not in use, which can only
// become less once the capacity was lowered. It reports whether that was
// anything.
func (k *keeper) shed(ctx context.Context, capacity int64) (bool, error) {
	k.mu.Lock()
	surplus := k.share.held > capacity
	k.mu.Unlock()
	if !surplus {
		return false, nil
	}
	if err := k.see(ctx); err != nil {
		return false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.share.held
	k.share.giveBack(k.share.held - max(capacity, k.share.inUse))
	return k.share.held < before, nil
}

// demand asks for what is missing, one block at a time, and returns when to look
// again; 0: when there is news. Regional batches have the keeper look anyway.
func (k *keeper) demand(now, recalled protocol.Micros, shed bool, last protocol.Reply) (next protocol.Micros) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.share
	missing, ready := -s.free(), s.ready(last)
	if recalled == 0 && missing > -ready/2 {
		missing += ready
	}
	least := max(1, s.inUse-s.held) // to cover what is in use
	if s.first > s.held {
		least = max(least, s.first)
	}
	switch {
	case s.ask != nil && (missing <= 0 || s.ask.least != least):
		s.ask.cancel() // at the end of it the keeper looks again
	case s.ask == nil && missing > 0:
		k.askFor(max(missing, least), least)
	}
	s.settled = s.free() <= ready
	switch {
	case recalled != 0 && shed:
		return k.region.quantum / 8 // for the other half
	case recalled != 0 && now < recalled+k.region.quantum:
		return recalled + k.region.quantum - now
	case s.held > 0 && recalled == 0 && s.first <= s.held && !s.settled: // or idle is not looked at
		return min(k.ttl/3, max(1, s.idle+lately-now))
	case s.held > 0 || s.inUse > 0 || s.wanted > 0:
		return k.ttl / 3
	}
	return 0 // nobody uses it
}

// askFor has a block come. The keeper's mutex is held.
func (k *keeper) askFor(weight, least int64) {
	ctx, cancel := context.WithCancel(k.life)
	started := k.region.workers.start(func() {
		defer cancel()
		k.asked(k.global.lease(ctx, weight, least))
	})
	if started {
		k.share.ask = &asking{least, cancel}
	} else {
		cancel()
	}
}

// asked is when a block has come, or not.
func (k *keeper) asked(p sema.Permit, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.share.ask = nil
	switch {
	case err == nil && k.life.Err() != nil:
		p.Release()
	case err == nil:
		now := k.region.global.clock()
		k.share.blocks = append(k.share.blocks, leasedBlock{p, now})
		k.share.look(now)
	}
	if err == nil || errors.Is(err, context.Canceled) {
		k.wake() // or it was refused, and the next look is soon enough
	}
}

// ears hold the last reply of the global store. Their mutex is taken last of all.
type ears struct {
	mu    sync.Mutex
	since protocol.Micros // when other regions began to wait; 0: they do not
	last  protocol.Reply  // without its results
	fresh bool            // its configuration was new, and nobody has looked at it yet
}

// hear reports whether there is something to do.
func (e *ears) hear(r protocol.Reply, now protocol.Micros) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	news := r.Recall != (e.since != 0) || r.Share != e.last.Share || r.Config != e.last.Config
	e.fresh = e.fresh || r.Config != e.last.Config
	e.last = r
	e.last.Results = nil
	switch {
	case !r.Recall:
		e.since = 0
	case e.since == 0:
		e.since = now
	}
	return news
}

func (e *ears) read() (since protocol.Micros, last protocol.Reply) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.since, e.last
}

// config is the configuration that was heard, if nobody has looked at it yet.
// What is learnt by other ways is newer then.
func (e *ears) config() (c protocol.Config, fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fresh, e.fresh = e.fresh, false
	return e.last.Config, fresh && e.last.Config.TTL != 0
}
