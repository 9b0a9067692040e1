package sema

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// A probe is what an observed or diagnosed semaphore has beyond a plain one.
// Its methods that report do nothing on a nil probe.
type probe struct {
	observers []Observer
	level     Level
	warnHold  time.Duration
	reclaim   bool
	sites     bool
	exhausted atomic.Bool // the last edge that was told
}

func (p *probe) wanted() bool { return len(p.observers) > 0 || p.level > Off || p.warnHold > 0 }

// tell fills in what every event has. One about a caller who is going to wait
// counts that one already.
func (p *probe) tell(s *Semaphore, e Event) {
	e.Name = s.name
	e.Waiters += s.core.waiters()
	for _, o := range p.observers {
		o.Observe(e)
	}
}

// An attempt is one acquire under observation.
type attempt struct {
	weight int64
	start  time.Time
	stack  stack // empty unless this one is recorded or call sites are wanted
	record bool
}

func (p *probe) begin(weight int64) attempt {
	a := attempt{weight: weight, start: time.Now()}
	switch {
	case p.level == Full, p.warnHold > 0:
		a.record = true
	case p.level == Sampled:
		a.record = rand.Uint32()%sampleEvery == 0
	}
	if a.record || p.sites {
		a.stack = callers()
	}
	return a
}

func (s *Semaphore) acquireProbed(ctx context.Context, n int64) (Permit, error) {
	p := s.probe
	a := p.begin(n)
	id := p.identify(ctx)
	p.auditOrder(s, id, a)
	v := s.core.tryOrWait(uint64(n))
	if v == pending {
		v = s.waitProbed(ctx, a, id)
	}
	return s.concludeProbed(ctx, "acquire", a, id, v)
}

func (s *Semaphore) tryProbed(ctx context.Context, n int64) (Permit, error) {
	a := s.probe.begin(n)
	return s.concludeProbed(ctx, "try", a, s.probe.identify(ctx), s.core.tryTake(uint64(n)))
}

// waitProbed tells that the caller is about to wait, and only then stands in
// line: observers may take their time, or panic, and nobody in line should
// depend on a goroutine that is with them.
func (s *Semaphore) waitProbed(ctx context.Context, a attempt, id identity) verdict {
	p := s.probe
	p.queueing(s, a)
	if a.record {
		wait := books.startWait(s, a, id)
		defer books.endWait(wait)
		p.auditDeadlock(s, wait)
	}
	if ctx.Err() != nil { // it may have ended while the observers were told
		return cancelled
	}
	w, v := s.core.enter(uint64(a.weight), ctx.Done())
	if v == pending {
		v = s.core.park(ctx, w, s.maxWait)
	}
	if a.record {
		contention.add(a.stack, time.Since(a.start), p.sampleWeight())
	}
	return v
}

// queueing tells that somebody is about to stand in line.
func (p *probe) queueing(s *Semaphore, a attempt) {
	p.tell(s, Event{Kind: Queued, Weight: a.weight, Site: a.stack.site(), Waiters: 1})
	if p.exhausted.CompareAndSwap(false, true) {
		p.tell(s, Event{Kind: Exhausted, Waiters: 1})
	}
}

func (s *Semaphore) concludeProbed(ctx context.Context, op string, a attempt, id identity, v verdict) (Permit, error) {
	e := Event{Weight: a.weight, Wait: time.Since(a.start), Site: a.stack.site()}
	switch v {
	case granted:
		return s.admitted(a, id, e), nil
	case cancelled:
		e.Kind, e.Err = Cancelled, context.Cause(ctx)
	case timedOut:
		e.Kind, e.Err = TimedOut, s.refusal(op, a.weight, v)
	default:
		e.Kind, e.Err = Rejected, s.refusal(op, a.weight, v)
	}
	s.probe.tell(s, e)
	s.probe.edge(s)
	return Permit{}, e.Err
}

// admitted makes the permit of an observed semaphore and tells of it. Should
// an observer panic, the permit is not lost with the stack.
func (s *Semaphore) admitted(a attempt, id identity, e Event) (permit Permit) {
	if a.record {
		permit = newRecord(s, a, id).permit(a.weight)
	} else {
		permit = s.pooledPermit(a.weight, sinceEpoch())
	}
	told := false
	defer func() {
		if !told {
			permit.Release()
		}
	}()
	e.Kind = Acquired
	s.probe.tell(s, e)
	s.probe.edge(s)
	told = true
	return permit
}

// giveBack returns the permits of a pooled handle.
func (s *Semaphore) giveBack(weight, since int64) {
	s.core.give(uint64(weight))
	if s.probe != nil {
		s.probe.released(s, weight, time.Duration(sinceEpoch()-since), "")
	}
}

func sinceEpoch() int64 { return int64(time.Since(epoch)) }

func (p *probe) released(s *Semaphore, weight int64, hold time.Duration, site string) {
	p.tell(s, Event{Kind: Released, Weight: weight, Hold: hold, Site: site})
	p.edge(s)
}

// edge tells when the semaphore became exhausted or recovered.
func (p *probe) edge(s *Semaphore) { p.edgeTo(s, s.core.exhausted()) }

// edgeTo tells of a change to what was seen. Having told, it looks again: who
// changed it back meanwhile found the flag not yet moved.
func (p *probe) edgeTo(s *Semaphore, exhausted bool) {
	for p.exhausted.CompareAndSwap(!exhausted, exhausted) {
		kind := Recovered
		if exhausted {
			kind = Exhausted
		}
		p.tell(s, Event{Kind: kind})
		exhausted = s.core.exhausted()
	}
}

// refused tells of a call that was answered without asking the core.
func (p *probe) refused(s *Semaphore, weight int64, err error, ctx context.Context) {
	if p == nil {
		return
	}
	kind := Rejected
	if ctx != nil && ctx.Err() != nil {
		kind = Cancelled
	}
	p.tell(s, Event{Kind: kind, Weight: weight, Err: err})
}

func (p *probe) resized(s *Semaphore) {
	if p != nil {
		p.tell(s, Event{Kind: Resized, Capacity: s.Stats().Capacity})
		p.edge(s)
	}
}

func (p *probe) drained(s *Semaphore) {
	if p != nil {
		p.tell(s, Event{Kind: Drained})
	}
}

func (p *probe) closed(s *Semaphore) {
	if p != nil {
		p.tell(s, Event{Kind: Closed})
	}
}
