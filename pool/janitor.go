package pool

import (
	"context"
	"math/rand/v2"
	"time"
)

// The janitor closes idle items that have expired, and keeps MinIdle items idle. It is a
// goroutine that exists while items are open and durations are to be measured, or while
// MinIdle is set, until Close.
//
// It also sets the coarse clock, once a round. Get and Release read that instead of the
// clock, which would take longer than the rest of them. The coarse clock is up to a round
// slow, and so is the time at which an item became idle.

// startJanitorLocked starts the janitor if it is needed and does not run.
func (p *Pool[T]) startJanitorLocked() {
	if p.round == 0 || p.watched || p.closed {
		return
	}
	p.watched = true
	p.tickLocked()
	go p.janitor()
}

func (p *Pool[T]) janitor() {
	ticker := time.NewTicker(p.round)
	defer ticker.Stop()
	for p.sweep() {
		select {
		case <-ticker.C:
		case <-p.stopJanitor:
			return
		}
	}
}

// sweep does the work of a round. It reports false if the janitor is not needed any more.
func (p *Pool[T]) sweep() bool {
	p.lock()
	now := p.tickLocked()
	expired := p.removeLocked(func(above int, s *slot[T]) bool {
		idleFor := time.Duration(now - s.since)
		return s.expires.Load() <= now || p.conf.MaxIdleTime > 0 && idleFor >= p.conf.MaxIdleTime+p.round && above >= p.conf.MinIdle
	})
	p.counts.Expired += int64(len(expired))
	p.counts.closing += int64(len(expired))
	p.fillLocked()
	p.watched = !p.closed && (p.counts.open > 0 || p.conf.MinIdle > 0)
	watched := p.watched
	p.unlock()
	if len(expired) > 0 {
		go p.closeAll(expired) // a Close that hangs must not stop the coarse clock
	}
	return watched
}

// tickLocked sets the coarse clock.
func (p *Pool[T]) tickLocked() int64 {
	now := max(p.now.Load(), int64(time.Since(p.start))) // in a synctest bubble it may be less
	p.now.Store(now)
	return now
}

// fillLocked opens items in the background until MinIdle are idle. Items that requests
// wait for do not count.
func (p *Pool[T]) fillLocked() {
	if p.conf.MinIdle == 0 || p.now.Load() < p.fillAfter {
		return
	}
	c := &p.counts
	soon := c.opening + c.checking - int64(p.requests.working)
	for want := int64(p.conf.MinIdle-p.idleLocked()) - soon; want > 0 && c.open < p.size && p.mayOpenLocked(); want-- {
		p.startOpenLocked(&work[T]{ctx: context.Background()})
	}
}

const (
	firstBackOff   = 100 * time.Millisecond
	longestBackOff = 30 * time.Second
)

// backOffLocked delays the next fillLocked after a failed Open, at random so that pools of
// many processes do not try all at once.
func (p *Pool[T]) backOffLocked() {
	d := min(longestBackOff, firstBackOff<<min(p.failures, 16))
	p.failures++
	p.fillAfter = p.now.Load() + int64(d/2+rand.N(d/2))
}

// expiryLocked returns the expiry of an item that was just opened.
func (p *Pool[T]) expiryLocked() int64 {
	d := p.conf.MaxLifetime
	return p.tickLocked() + max(1, int64(d-rand.N(d/10+1)))
}
