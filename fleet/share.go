package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A share is a region's share of a semaphore, with its last known usage. The keeper's mutex
// guards it.
type share struct {
	inUse, wanted, first int64           // of the regional semaphore: permits in use, weight of the queue, weight of its first waiter
	low                  int64           // minimum of free since idle
	idle                 protocol.Micros // when the measurement of low began
	settled              bool            // no surplus was left at the last step

	blocks       []leasedBlock   // oldest first
	held         int64           // total weight of blocks
	trustedUntil protocol.Micros // until when the blocks are certainly held, as of refreshedAt
	refreshedAt  protocol.Micros
	request      *blockRequest // nil: none
}

// A leasedBlock is a permit of the global semaphore.
type leasedBlock struct {
	sema.Permit
	since protocol.Micros
}

// A blockRequest is a request for a block that is not decided yet.
type blockRequest struct {
	least  int64
	cancel context.CancelFunc
}

// note stores the usage of the regional semaphore.
func (s *share) note(r protocol.Reply) {
	s.inUse, s.wanted, s.first = r.InUse, r.Wanted, r.First
	s.low = min(s.low, s.free())
}

// free returns the permits that are neither in use nor needed by waiters. It is negative if
// permits are missing.
func (s *share) free() int64 { return s.held - s.inUse - s.wanted }

// reserve returns how many permits the region should have free to bridge the time until
// more can arrive.
func (s *share) reserve(last protocol.Reply) int64 { return max(last.Cushion(s.inUse), s.held/32) }

// refresh removes lost blocks, and updates how much is held and for how long.
func (s *share) refresh(now protocol.Micros) {
	s.refreshedAt, s.trustedUntil, s.held = now, 0, 0
	s.blocks = slices.DeleteFunc(s.blocks, func(b leasedBlock) bool { return b.Err() != nil })
	for i, b := range s.blocks {
		lease, _ := LeaseOf(b.Permit)
		until := now + protocol.Micros(lease.Left.Microseconds())
		if i == 0 || until < s.trustedUntil {
			s.trustedUntil = until
		}
		s.held += b.Weight()
	}
}

// surplusAge is how long permits must be unused before a region returns them although no
// other region waits. It is several round trips around the world, so that a region does not
// request permits again right after it has returned them.
const surplusAge = protocol.Micros(250_000)

// target returns the capacity that the regional semaphore should have.
func (s *share) target(now, quantum, recalled protocol.Micros, last protocol.Reply) int64 {
	s.refresh(now)
	switch {
	case s.first > s.held:
		return min(s.held, s.inUse) // keep nothing that others wait for while waiting for more
	case recalled != 0:
		return s.keepRecalled(now, quantum, recalled, last.Share)
	case now-s.idle < surplusAge:
		return s.held
	}
	surplus := max(0, s.low-s.reserve(last))
	s.low, s.idle = s.free()-surplus, now
	return s.held - surplus
}

// keepRecalled returns how much the region may keep while other regions wait: its even
// share, or the blocks it has had for less than a quantum if that is more. Half of the free
// part is subtracted, and half of the rest again at the next step.
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

// release releases that weight of the blocks, the youngest first.
func (s *share) release(weight int64) {
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

// releaseSurplus releases what is held beyond the capacity and not in use. The usage can
// only decrease once the capacity was lowered. It reports whether anything was released.
func (k *keeper) releaseSurplus(ctx context.Context, capacity int64) (bool, error) {
	k.mu.Lock()
	surplus := k.share.held > capacity
	k.mu.Unlock()
	if !surplus {
		return false, nil
	}
	if err := k.poll(ctx); err != nil {
		return false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.share.held
	k.share.release(k.share.held - max(capacity, k.share.inUse))
	return k.share.held < before, nil
}

// requestMissing requests missing permits, one block at a time. It returns the time until the
// next step; 0: at the next wakeup. Regional batches wake the keeper anyway.
func (k *keeper) requestMissing(now, recalled protocol.Micros, released bool, last protocol.Reply) (next protocol.Micros) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.share
	missing, reserve := -s.free(), s.reserve(last)
	if recalled == 0 && missing > -reserve/2 {
		missing += reserve
	}
	least := max(1, s.inUse-s.held) // covers the permits in use
	if s.first > s.held {
		least = max(least, s.first)
	}
	switch {
	case s.request != nil && (missing <= 0 || s.request.least != least):
		s.request.cancel() // when the request ends, the keeper is woken
	case s.request == nil && missing > 0:
		k.requestBlockLocked(max(missing, least), least)
	}
	s.settled = s.free() <= reserve
	switch {
	case recalled != 0 && released:
		return k.region.quantum / 8 // returns the next half
	case recalled != 0 && now < recalled+k.region.quantum:
		return recalled + k.region.quantum - now
	case s.held > 0 && recalled == 0 && s.first <= s.held && !s.settled: // target does not use idle otherwise
		return min(k.ttl/3, max(1, s.idle+surplusAge-now))
	case s.held > 0 || s.inUse > 0 || s.wanted > 0:
		return k.ttl / 3
	}
	return 0 // unused
}

// requestBlockLocked starts a request for a block. It requires the keeper's mutex.
func (k *keeper) requestBlockLocked(weight, least int64) {
	ctx, cancel := context.WithCancel(k.life)
	started := k.region.workers.start(func() {
		defer cancel()
		k.addBlock(k.global.lease(ctx, weight, least))
	})
	if started {
		k.share.request = &blockRequest{least, cancel}
	} else {
		cancel()
	}
}

// addBlock adds the block of a request, unless the request failed.
func (k *keeper) addBlock(p sema.Permit, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.share.request = nil
	switch {
	case err == nil && k.life.Err() != nil:
		p.Release()
	case err == nil:
		now := k.region.global.clock()
		k.share.blocks = append(k.share.blocks, leasedBlock{p, now})
		k.share.refresh(now)
	}
	if err == nil || errors.Is(err, context.Canceled) {
		k.wake() // after other errors the next scheduled step is soon enough
	}
}

// A replyInbox stores the last reply of the global store. Its mutex is acquired last.
type replyInbox struct {
	mu    sync.Mutex
	since protocol.Micros // when other regions began to wait; 0: none wait
	last  protocol.Reply  // without its results
	fresh bool            // takeConfig has not returned its configuration yet
}

// put stores a reply, and reports whether the keeper has to react.
func (e *replyInbox) put(r protocol.Reply, now protocol.Micros) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed := r.Recall != (e.since != 0) || r.Share != e.last.Share || r.Config != e.last.Config
	e.fresh = e.fresh || r.Config != e.last.Config
	e.last = r
	e.last.Results = nil
	switch {
	case !r.Recall:
		e.since = 0
	case e.since == 0:
		e.since = now
	}
	return changed
}

func (e *replyInbox) read() (since protocol.Micros, last protocol.Reply) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.since, e.last
}

// takeConfig returns the configuration of the last reply, and whether it is new since the
// last call. After that, a configuration from another source counts as newer.
func (e *replyInbox) takeConfig() (c protocol.Config, fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fresh, e.fresh = e.fresh, false
	return e.last.Config, fresh && e.last.Config.TTL != 0
}
