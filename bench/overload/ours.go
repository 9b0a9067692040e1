package overload

import (
	"context"
	"log/slog"
	"time"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// The names of our implementations.
const (
	Plain    = "sema/admit"
	CoDel    = "sema/admit, CoDel"
	All      = "sema/admit, everything on"
	Gradient = "sema/admit, Gradient"
	Vegas    = "sema/admit, Vegas"
	AIMD     = "sema/admit, AIMD"
)

// unknownStart and unknownMax are the first limit and the highest one of implementations
// that adapt: defaults of the rivals.
const (
	unknownStart = 20
	unknownMax   = 200
)

func ours() []Implementation {
	plain := func(order wfq.Order, edit func(*admit.Config)) func([]Class) Gate {
		return func(classes []Class) Gate { return controller(Slots, classes, order, edit) }
	}
	adapts := func(l func() admit.Limit) func([]Class) Gate {
		return func(classes []Class) Gate {
			return controller(unknownStart, classes, wfq.FIFO, func(c *admit.Config) { c.Limit = l() })
		}
	}
	return []Implementation{
		{Name: Plain, Ours: true, Make: plain(wfq.FIFO, func(*admit.Config) {})},
		{Name: CoDel, Ours: true, Make: plain(wfq.CoDel, func(*admit.Config) {})},
		{Name: All, Ours: true, Make: plain(wfq.FIFO, func(c *admit.Config) {
			c.Rate, c.Budget = rate.New(1<<40, time.Second), rate.New(1<<40, time.Second)
			c.Breaker = admit.NewBreaker(admit.BreakerConfig{SlowCall: Deadline})
			c.Limit = &admit.AIMD{Max: Slots, Timeout: Deadline}
		})},
		{Name: Gradient, Ours: true, Adapts: true, Make: adapts(func() admit.Limit { return &admit.Gradient{Max: unknownMax} })},
		{Name: Vegas, Ours: true, Adapts: true, Make: adapts(func() admit.Limit { return &admit.Vegas{Max: unknownMax} })},
		{Name: AIMD, Ours: true, Adapts: true, Make: adapts(func() admit.Limit { return &admit.AIMD{Max: unknownMax, Timeout: Deadline / 2} })},
	}
}

// controller returns a controller of package admit, with edits of its configuration.
func controller(slots int64, classes []Class, order wfq.Order, edit func(*admit.Config)) Gate {
	q := wfq.New(slots)
	q.Default(wfq.Share{Order: order})
	for _, c := range classes {
		q.Set(c.Name, wfq.Share{Weight: c.Weight, Order: order})
	}
	config := admit.Config{Queue: q, MaxWait: WaitBudget, Logger: slog.New(slog.DiscardHandler)}
	edit(&config)
	c := admit.New(config)
	return Gate{
		Admit: func(ctx context.Context, class string, cost int64) (func(Ending), error) {
			a, err := c.Admit(ctx, admit.Request{Class: class, Weight: cost, Cost: cost})
			return func(o Ending) {
				a.Done([...]admit.Result{OK: admit.OK, Late: admit.Dropped, Left: admit.Ignored}[o])
			}, err
		},
		InUse: func() int64 { return q.Stats().InUse },
	}
}
