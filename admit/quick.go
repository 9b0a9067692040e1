package admit

import (
	"context"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/monotonic"
	"github.com/sema-go/sema/internal/seal"
)

// admit admits a request that passes all checks at once, which is what most requests do
// while there is no overload. It has the checks of attempt.run in their order, reads the
// clock once, and builds no attempt. It rejects nothing: if a check fails, it returns what it
// has taken, and decide runs them all again and counts the result.
func (c *Controller) admit(ctx context.Context, r Request, mayWait bool) (Admission, error) {
	if c.switches.Load() != 0 || ctx == nil || ctx.Err() != nil || r.Weight < 0 || r.Cost < 0 {
		return c.decide(ctx, r, mayWait)
	}
	if r.Cost > 0 && !c.budget.quick() {
		return c.decide(ctx, r, mayWait)
	}
	k, weight, key := c.classes.of(r.Class), max(1, r.Weight), seal.Key{}
	if k.shedding.Load() || !k.quick || !k.queue.Calm(key, weight) || c.breaker != nil && !c.breaker.closed() {
		return c.decide(ctx, r, mayWait)
	}
	var now time.Duration
	if c.timed || c.rate.gate != nil || k.rate.gate != nil || r.Cost > 0 {
		now = monotonic.Since()
	}
	var all, own, budget, permit sema.Permit
	ok := true
	if g := c.rate.gate; g != nil {
		all, ok = g.TakeAt(key, 1, now)
	}
	if g := k.rate.gate; g != nil && ok {
		own, ok = g.TakeAt(key, 1, now)
	}
	if g := c.budget.gate; g != nil && r.Cost > 0 && ok {
		budget, ok = g.TakeAt(key, r.Cost, now)
	}
	if ok {
		permit, ok = k.queue.TakeCalm(key, weight)
	}
	if !ok {
		c.rate.refund(all)
		k.rate.refund(own)
		c.budget.refund(budget)
		return c.decide(ctx, r, mayWait)
	}
	a := Admission{c: c, permit: permit, start: now}
	if budget.Weight() > 0 {
		a.ticket = newTicket(false, Attempt{}, budget)
	}
	return a, nil
}
