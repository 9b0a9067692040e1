package admit

import (
	"context"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// A Config describes a [Controller]. Every field is optional.
type Config struct {
	// Name appears in errors, logs and pages.
	Name string
	// Queue bounds the requests in flight and decides which one is served next. Default: no
	// bound. Give it to one controller only: Shutdown drains it.
	Queue *wfq.Queue
	// MaxWait is the wait budget: how long a request may wait for rates, budget and queue
	// together. A request that would probably wait for longer is rejected at once. 0: as long
	// as its context and the gates allow.
	MaxWait time.Duration
	// Rate bounds how many requests start: each takes one permit. Default: no bound. A rate
	// of package fleet is shared by all machines.
	Rate rate.Limiter
	// RateOf returns the rate of a class, or nil. It must return the same limiter for the
	// same class: it is called again for classes that were idle. Default: none.
	RateOf func(class string) rate.Limiter
	// Budget bounds what requests cost: each takes [Request.Cost] permits, such as tokens or
	// bytes. [Admission.Settle] corrects them. Default: no bound.
	Budget rate.Limiter
	// Breaker rejects requests while the dependency behind them fails. Default: none.
	Breaker *Breaker
	// Limit adapts how many requests may be in flight to what the dependency can bear.
	// Default: it is fixed.
	Limit Limit
	// Resizes is what Limit resizes: anything with a method Resize(int64) or
	// Resize(context.Context, int64) error, such as a fleet semaphore. Default: Queue.
	Resizes any
	// Degrade decides whether a request that would wait or be rejected gets a cheap
	// response instead. It must be quick. Default: none does.
	Degrade func(Load) bool
	// Result is the result of a function that [Controller.Do] has run, given its error.
	// Default: ResultOf.
	Result func(error) Result
	// Logger receives rejections, at most one line in ten seconds for each reason; changes of
	// the breaker with their reasons, at most one line in ten seconds for each state; and what
	// operators change. Default: slog.Default().
	Logger *slog.Logger
	// Observers receive EventRejected for each rejection. Observers of waits and permits
	// belong to the options of Queue.
	Observers []sema.Observer
}

// A Controller admits or rejects requests. Create it with [New]. It is safe for concurrent
// use.
type Controller struct {
	config  Config
	queue   *wfq.Queue
	rate    limiter
	budget  limiter
	breaker *Breaker
	adapter *Adapter // nil: the limit is fixed
	timed   bool     // requests need the clock
	// standIns issues the permits of admissions that hold none of the queue.
	standIns sema.Issuer
	classes  classes
	log      sheddingLog
	changes  breakerLog
	pauses   pauses // of rate and budget
	waits    drain  // of requests that wait for a rate

	switches atomic.Uint32
	clamped  atomic.Int64
	degraded atomic.Int64
	shed     [reasons]counter
}

// The switches of a controller.
const (
	sheddingSwitch = 1 << iota
	drainingSwitch
)

// New returns a controller. It panics if the configuration is invalid.
func New(config Config) *Controller {
	if config.MaxWait < 0 {
		panic("admit: New: Config.MaxWait is negative; use 0 for no bound")
	}
	if config.Resizes != nil && config.Limit == nil {
		panic("admit: New: Config.Resizes is set, and Config.Limit, which would resize it, is not")
	}
	if config.Queue == nil {
		config.Queue = wfq.New(math.MaxInt64, sema.Name(config.Name))
	}
	if config.Result == nil {
		config.Result = ResultOf
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	c := &Controller{
		config: config, queue: config.Queue, breaker: config.Breaker,
		rate: newLimiter(config.Rate), budget: newLimiter(config.Budget),
		classes: classes{queue: config.Queue, rateOf: config.RateOf, quick: newLimiter(config.Rate).quick()},
	}
	if config.Limit != nil {
		target := config.Resizes
		if target == nil {
			target = config.Queue
		}
		c.adapter = Adapt(target, config.Limit)
		c.adapter.inFlight = c.inFlight
	}
	if c.breaker != nil {
		c.breaker.watch(func(to change) { c.changes.changed(c, to) })
	}
	c.waits.open()
	c.timed = c.breaker != nil || c.adapter != nil
	c.standIns.Init(standInOwner{}, nil)
	return c
}

// A Request describes what is to be admitted.
type Request struct {
	Class  string // tenant, tier or kind of work; "": the default class
	Weight int64  // permits of the queue; 0: 1
	Cost   int64  // permits of the budget; 0: none
}

// Admit admits a request, or returns why not: a [Rejection], the cause of a context that
// ended, or an error that wraps ErrInvalid. It waits if it has to, in the queue and for
// rates, but not if the wait is expected to outlast the deadline of ctx or MaxWait. Call
// [Admission.Done] when the request has ended.
//
// A weight above what the queue grants at once is lowered to that, and so is a cost above
// that of the budget. Otherwise a limit that shrinks would lock out the requests that are
// heavier than it. Such requests are counted.
func (c *Controller) Admit(ctx context.Context, r Request) (Admission, error) {
	return c.admit(ctx, r, true)
}

// TryAdmit admits a request without waiting, or returns why not.
func (c *Controller) TryAdmit(ctx context.Context, r Request) (Admission, error) {
	return c.admit(ctx, r, false)
}

// Do runs fn as an admitted request, and reports its result. The context of fn carries the
// permit and the admission, see [Admission.Context]: with [Config.Degrade], fn must ask
// [FromContext] whether it is to respond cheaply. If fn panics, the request has failed.
func (c *Controller) Do(ctx context.Context, r Request, fn func(context.Context) error) error {
	a, err := c.Admit(ctx, r)
	if err != nil {
		return err
	}
	defer a.Done(Failed) // unless it is done: fn has panicked
	held, cancel := a.Context(ctx)
	defer cancel()
	err = fn(held)
	a.Done(c.config.Result(err))
	return err
}

// Shed switches the rejection of all requests on or off, for an operator.
func (c *Controller) Shed(on bool) {
	c.setSwitch(sheddingSwitch, on)
	c.config.Logger.Info("shedding switched", "controller", c.config.Name, "on", on)
}

// ShedClass switches the rejection of all requests of a class on or off.
func (c *Controller) ShedClass(name string, on bool) {
	c.classes.keep(name, func(k *class) { k.shedding.Store(on) })
	c.config.Logger.Info("shedding of a class switched", "controller", c.config.Name, "class", name, "on", on)
}

// Shutdown rejects all new requests and those that wait, and waits until those in flight are
// done. Degraded requests hold no permit, so it does not wait for them. If ctx ends first, it
// returns an error that wraps its cause.
func (c *Controller) Shutdown(ctx context.Context) error {
	c.setSwitch(drainingSwitch, true)
	c.waits.close()
	return c.queue.Drain(ctx)
}

// Resume ends a Shutdown.
func (c *Controller) Resume() {
	c.queue.Resume()
	c.waits.open()
	c.setSwitch(drainingSwitch, false)
}

func (c *Controller) setSwitch(bit uint32, on bool) {
	if on {
		c.switches.Or(bit)
	} else {
		c.switches.And(^bit)
	}
}

// inFlight returns the permits in use, and whether requests wait for more.
func (c *Controller) inFlight() (n int64, waits bool) {
	st := c.queue.Stats()
	return st.InUse, st.Waiters > 0
}
