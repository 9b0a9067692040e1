package server

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
)

// maxEstimate bounds a Retry-After that is estimated from the past: permits may become free
// sooner than the past suggests. What is known, such as when a rate's permits return, is not
// bounded.
const maxEstimate = 30 * time.Second

// retryTime returns how long a rejected client should wait, as far as this server knows:
// when the store has decided, when permits are expected to be free, or how long the store has
// been away. 0: nothing is known.
func (s *service) retryTime(kind *problemKind, err error) time.Duration {
	var fault *sema.Error
	errors.As(err, &fault)
	switch kind {
	case kindUndecided, kindFull, kindQueueFull, kindTimeout:
		if fault != nil && fault.After > 0 {
			return fault.After
		}
	case kindStore:
		return min(s.store.away(), maxEstimate)
	}
	if fault == nil || fault.Weight == 0 || kind.status != tooMany {
		return 0
	}
	after := s.store.freeIn(fault)
	var rate *leasing.RateError
	if errors.As(err, &rate) {
		if after == 0 {
			after = returnTime(rate.Window, fault.Weight, fault.Capacity)
		}
		return after
	}
	return min(after, maxEstimate)
}

// A pace is what this server has seen of one semaphore: its grants of the last minute, or of
// the window of a rate, and its queue at the last reply of the store. Grants through other
// servers are unknown, so an estimate may be too long.
type pace struct {
	mu       sync.Mutex // guards what follows
	capacity int64
	inUse    int64
	wanted   int64         // weights of the queue
	window   time.Duration // of a rate; 0: no rate
	grants   []grants      // oldest first
	counted  [16]protocol.Seq
}

// grants are grants that followed each other soon.
type grants struct {
	first, last time.Time
	weight      int64
}

const (
	// paceWindow is how far back the grants of a semaphore count.
	paceWindow = time.Minute
	// paceParts is the number of parts into which the grants of a window are divided. An
	// estimate for a rate is late by at most the length of a part.
	paceParts = 16
)

// observe notes a reply of the store.
func (p *pace) observe(now time.Time, r *protocol.Reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.capacity, p.inUse, p.wanted, p.window = r.Config.Capacity, r.InUse, r.Wanted, span(r.Config.Window)
	for _, result := range r.Results {
		if result.Kind != protocol.Granted || p.seenLocked(result.Lease) {
			continue
		}
		if n := len(p.grants); n > 0 && now.Sub(p.grants[n-1].first) < p.spanLocked()/paceParts {
			p.grants[n-1].last = now
			p.grants[n-1].weight += result.Weight
		} else {
			p.pruneLocked(now)
			p.grants = append(p.grants, grants{now, now, result.Weight})
		}
	}
}

// seenLocked reports whether a grant is counted already: a store repeats results until they
// are acknowledged. Replies arrive in about the order of their grants.
func (p *pace) seenLocked(lease protocol.Seq) bool {
	counted := &p.counted[lease%protocol.Seq(len(p.counted))]
	if lease <= *counted {
		return true
	}
	*counted = lease
	return false
}

func (p *pace) spanLocked() time.Duration {
	if p.window > 0 {
		return p.window
	}
	return paceWindow
}

// pruneLocked forgets old grants, but not the last ones of a semaphore: since when nothing
// was granted is what is known about permits that are held for long.
func (p *pace) pruneLocked(now time.Time) {
	keep := 0
	for keep < len(p.grants) && now.Sub(p.grants[keep].last) >= p.spanLocked() && (p.window > 0 || keep < len(p.grants)-1) {
		keep++
	}
	p.grants = append(p.grants[:0], p.grants[keep:]...)
}

// freeIn returns the time until permits of a weight are expected to be free for a request
// that was rejected for a reason; 0: unknown.
func (p *pace) freeIn(now time.Time, weight int64, why error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pruneLocked(now)
	missing := p.inUse + weight - p.capacity
	switch {
	case errors.Is(why, sema.ErrQueueFull): // there is room in the queue after the next grant
		missing = weight
	case errors.Is(why, sema.ErrTimeout): // the queue may still contain the request itself
		missing += max(0, p.wanted-weight)
	default:
		missing += p.wanted
	}
	switch {
	case missing <= 0 || p.capacity <= 0 || len(p.grants) == 0:
		return 0
	case p.window > 0:
		return p.returnInLocked(now, missing)
	}
	var total int64
	for _, g := range p.grants {
		total += g.weight
	}
	elapsed := now.Sub(p.grants[0].first)
	return time.Duration(min(float64(elapsed)*float64(missing)/float64(max(total, 1)), float64(maxEstimate)))
}

// returnInLocked returns the time until that many permits of a rate have returned. Each
// returns a window after its grant, and the windows that follow are as full as this one.
func (p *pace) returnInLocked(now time.Time, missing int64) time.Duration {
	whole := (missing - 1) / p.capacity
	missing -= whole * p.capacity
	for _, g := range p.grants {
		if missing -= g.weight; missing <= 0 {
			return min(time.Duration(whole), maxWindows)*p.window + g.last.Add(p.window).Sub(now)
		}
	}
	return 0 // others have spent them
}

// next returns when a rate has its next permit, at the latest, and the permits that this server has
// granted in its window: if more are in use, other servers have granted them. 0: nothing is known.
func (p *pace) next(now time.Time) (in time.Duration, granted int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.window == 0 {
		return 0, 0
	}
	p.pruneLocked(now)
	for _, g := range p.grants {
		if granted == 0 {
			if in = g.first.Add(p.window).Sub(now); in <= 0 { // some of them have returned
				in = g.last.Add(p.window).Sub(now)
			}
		}
		granted += g.weight
	}
	return in, granted
}

// maxWindows bounds the windows that an estimate counts.
const maxWindows = 100

// observe notes a reply of the store for the estimates of a semaphore.
func (e *entry) observe(r *protocol.Reply) {
	p := e.pace.Load()
	if p == nil {
		if len(r.Results) == 0 {
			return // most names are never granted from here
		}
		e.pace.CompareAndSwap(nil, new(pace))
		p = e.pace.Load()
	}
	p.observe(time.Now(), r)
}

// paceOf returns what this server has seen of a semaphore; nil: nothing.
func (c *catalog) paceOf(name string) *pace {
	c.mu.Lock()
	e := c.names[name]
	c.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.pace.Load()
}

// freeIn returns the time until a rejected request is expected to succeed; 0: unknown.
func (c *catalog) freeIn(fault *sema.Error) time.Duration {
	if p := c.paceOf(fault.Name); p != nil {
		return p.freeIn(time.Now(), fault.Weight, fault.Err)
	}
	return 0
}

// away returns how long the store has failed without a success in between. It is the wait
// that is advised: so the waits of a client double, and an outage of a second is soon over.
func (c *catalog) away() time.Duration {
	if since := c.failedSince.Load(); since != 0 {
		return time.Since(time.Unix(0, since))
	}
	return 0
}

// replied notes that the store works.
func (c *catalog) replied() {
	if c.failedSince.Load() != 0 {
		c.failedSince.Store(0)
	}
}

// A limitMeter counts what is used of a limit, and learns how long the limit stays reached.
type limitMeter struct {
	atomic.Int64
	reached atomic.Int64 // when the limit was last reached, in nanoseconds since 1970; 0: never
	lasted  atomic.Int64 // how long that lasts on average, in nanoseconds
}

// rose notes that n are used.
func (m *limitMeter) rose(n, limit int64) {
	if n == limit {
		m.reached.Store(time.Now().UnixNano())
	}
}

// fell notes that n are used, after one has ended. The average is approximate: of concurrent
// updates, one may be lost.
func (m *limitMeter) fell(n, limit int64) {
	if since := m.reached.Load(); n == limit-1 && since != 0 {
		const share = 4 // of the past in the average
		last, average := time.Now().UnixNano()-since, m.lasted.Load()
		m.lasted.Store(average + (last-average)/share)
	}
}

// freeIn returns the time until the limit is expected to be no longer reached: as long as
// that usually takes, or as long as it has taken by now.
func (m *limitMeter) freeIn() time.Duration {
	since := m.reached.Load()
	if since == 0 {
		return 0
	}
	return min(max(time.Duration(m.lasted.Load()), time.Since(time.Unix(0, since))), maxEstimate)
}
