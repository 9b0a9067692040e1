package rate

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sema-go/sema"
)

// A Limiter is a rate that can be settled: a [Gate], or a rate of package fleet.
type Limiter interface {
	sema.Gate
	Settle(p sema.Permit, cost int64)
	Delay(n int64) time.Duration
}

// A Gate grants n permits per period. Create it with [New]. It is safe for concurrent use.
type Gate struct {
	settings settings
	monitor  *sema.Monitor // nil unless observed or diagnosed
	spender  sema.Spender

	mu     sync.Mutex // guards what follows
	clock  clock
	bucket bucket
	queue  queue
	paused int64 // nothing is granted before this time, in ns
	phase  phase
	counts sema.Counts
	waits  waitClock
}

// A phase is what a gate does with callers.
type phase uint8

const (
	open phase = iota
	draining
	closed
)

var _ Limiter = (*Gate)(nil)

// New returns a gate that grants n permits per period, all of the burst free. It panics
// unless n and period are positive.
func New(n int64, per time.Duration, opts ...Option) *Gate {
	checkRate("New", n, per)
	g := &Gate{settings: newSettings(opts)}
	burst := g.settings.burst
	if burst == 0 {
		burst = n
	}
	g.clock.last = now()
	g.bucket = bucket{n: n, period: int64(per), burst: burst, free: burst, at: g.clock.last}
	g.paused, g.waits.at = g.clock.last, g.clock.last
	g.spender.Init()
	g.monitor = sema.NewMonitor(g, g.settings.shared...)
	return g
}

func checkRate(op string, n int64, per time.Duration) {
	if n < 1 || n > sema.MaxCapacity || per < 1 {
		panic(fmt.Sprintf("rate: %s(%d, %v): want 1 to %d permits per positive duration", op, n, per, sema.MaxCapacity))
	}
}

// Name returns the name that the option [sema.Name] set.
func (g *Gate) Name() string { return g.settings.Name }

// Acquire waits until n permits are granted, in order of arrival, and fails as
// [sema.Semaphore.Acquire] does. More than the burst is [sema.ErrTooLarge]. The permit is
// spent: it need not be released.
func (g *Gate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "acquire"
	if n <= 0 || ctx == nil || ctx.Err() != nil {
		return g.unusual(ctx, op, n)
	}
	wait := g.monitor.Begin(ctx, n)
	g.mu.Lock()
	id, err := g.takeLocked(n)
	if err == sema.ErrFull && g.monitor != nil && g.mayQueueLocked() {
		g.mu.Unlock()
		wait.Queued() // before the caller is queued: observers may be slow
		g.mu.Lock()
		if ctx.Err() == nil { // or else the wait ends at once
			id, err = g.takeLocked(n)
		}
	}
	switch {
	case err != sema.ErrFull:
		g.mu.Unlock()
	case !g.mayQueueLocked():
		err = sema.ErrQueueFull
		g.counts.Failed(err, false)
		g.mu.Unlock()
	default:
		id, err = g.waitLocked(ctx, n)
	}
	return g.conclude(op, n, &wait, id, err)
}

// TryAcquire takes n permits if they are free and no caller waits. Otherwise it fails with
// [sema.ErrFull]; the error's After is the time after which they are free.
func (g *Gate) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "try"
	if n <= 0 || ctx == nil || ctx.Err() != nil {
		return g.unusual(ctx, op, n)
	}
	g.mu.Lock()
	id, err := g.takeLocked(n)
	if err == sema.ErrFull {
		g.counts.Failed(err, false)
	}
	g.mu.Unlock()
	if err == nil && g.monitor == nil {
		return g.spender.Permit(n, id), nil
	}
	wait := g.monitor.BeginTry(ctx, n)
	return g.conclude(op, n, &wait, id, err)
}

// takeLocked takes permits that are free while no caller waits. It fails with a sentinel;
// ErrFull is not counted, since the caller may wait.
func (g *Gate) takeLocked(n int64) (id uint64, err error) {
	at := g.advanceLocked()
	err = g.phaseErrorLocked()
	switch {
	case err != nil:
	case n > g.bucket.burst:
		err = sema.ErrTooLarge
	case g.queue.head != nil || n > g.bucket.free || at < g.paused:
		return 0, sema.ErrFull
	default:
		g.counts.Acquired++
		return g.bucket.take(n), nil
	}
	g.counts.Failed(err, false)
	return 0, err
}

func (g *Gate) phaseErrorLocked() error {
	switch g.phase {
	case draining:
		return sema.ErrDraining
	case closed:
		return sema.ErrClosed
	}
	return nil
}

// advanceLocked returns the permits of the time up to now, and now.
func (g *Gate) advanceLocked() int64 {
	at := g.clock.read()
	waited := g.queue.head != nil && g.paused <= g.bucket.at
	g.bucket.advance(at)
	if !waited {
		g.bucket.spill()
	}
	return at
}

// mayQueueLocked reports whether one more caller may wait.
func (g *Gate) mayQueueLocked() bool {
	most := g.settings.MaxWaiters
	return most == 0 || g.queue.n < most
}

// unusual handles calls that are decided without the bucket.
func (g *Gate) unusual(ctx context.Context, op string, n int64) (sema.Permit, error) {
	var err error
	switch {
	case ctx == nil:
		err = g.fault(op, n, sema.ErrInvalid, "nil context")
	case n < 0:
		err = g.fault(op, n, sema.ErrInvalid, "negative weight")
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default: // weight 0 is granted unless the gate rejects all
		g.mu.Lock()
		err = g.phaseErrorLocked()
		g.counts.Failed(err, false)
		g.mu.Unlock()
		if err == nil {
			return sema.Permit{}, nil
		}
		err = g.fault(op, n, err, "")
	}
	wait := g.monitor.BeginTry(ctx, n)
	return sema.Permit{}, wait.Failed(err)
}

// conclude reports a decision and returns the permit or the error of a caller.
func (g *Gate) conclude(op string, n int64, wait *sema.Wait, id uint64, err error) (sema.Permit, error) {
	switch e := err.(type) {
	case nil:
		return g.spend(n, wait, id), nil
	case cancelled:
		return sema.Permit{}, wait.Failed(e.cause)
	}
	detail := ""
	if err == sema.ErrTimeout {
		detail = g.settings.MaxWait.String()
	}
	return sema.Permit{}, wait.Failed(g.fault(op, n, err, detail))
}

// cancelled is the result of a wait whose context has ended. Its cause may be any error, a
// sentinel of package sema too.
type cancelled struct{ cause error }

func (c cancelled) Error() string { return c.cause.Error() }

// spend reports a grant and returns its permit. If an observer panics, the permit is
// refunded.
func (g *Gate) spend(n int64, wait *sema.Wait, id uint64) sema.Permit {
	reported := false
	defer func() {
		if !reported {
			g.Settle(g.spender.Permit(n, id), 0)
		}
	}()
	p := wait.Spent(&g.spender, id)
	reported = true
	return p
}

// Delay returns the time after which n permits are available to a caller that arrives now,
// for a Retry-After. It is an estimate while callers wait. It is math.MaxInt64 if n is more
// than the burst.
func (g *Gate) Delay(n int64) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.delayLocked(n)
}

func (g *Gate) delayLocked(n int64) time.Duration {
	at := g.advanceLocked()
	if n > g.bucket.burst {
		return math.MaxInt64
	}
	return max(g.bucket.until(n+g.queue.weight), time.Duration(g.paused-at))
}

// Settle corrects what a permit has cost, once that is known. Less than its weight is
// refunded, exactly: as if the permit had had that weight, except that a bucket that was
// full since has lost permits. More is charged to the future: nothing is granted until the
// bucket has recovered. The first Settle of a permit counts, and inert permits have
// nothing to settle. It panics on a negative cost and on permits of other gates.
func (g *Gate) Settle(p sema.Permit, cost int64) {
	if p.Weight() == 0 {
		return
	}
	id := g.spender.ID(p)
	if id == 0 || cost < 0 {
		panic(fmt.Sprintf("rate: Settle(%v, %d): want a permit of this gate and a cost ≥ 0", p, cost))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.bucket.settleOnce(id) {
		return
	}
	g.advanceLocked()
	switch n := p.Weight(); {
	case cost > n:
		g.bucket.charge(cost - n)
	case cost < n && g.bucket.refund(id, n-cost):
		g.serveLocked()
	}
}

// Set changes the rate. Permits that have returned stay, up to the burst, and a full bucket
// stays full; the burst follows n unless [Burst] has set it. Waiters of more than the new burst fail with
// [sema.ErrTooLarge]. It panics unless n and per are positive.
func (g *Gate) Set(n int64, per time.Duration) {
	checkRate("Set", n, per)
	g.mu.Lock()
	g.advanceLocked()
	burst := g.settings.burst
	if burst == 0 {
		burst = n
	}
	g.bucket.setRate(n, int64(per), burst)
	g.rejectLocked(sema.ErrTooLarge, func(w *waiter) bool { return w.n > burst })
	g.serveLocked()
	g.mu.Unlock()
	g.monitor.Report(sema.Event{Kind: sema.EventResized, Capacity: burst})
}

// Rate returns the permits per period and the burst.
func (g *Gate) Rate() (n int64, per time.Duration, burst int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bucket.n, time.Duration(g.bucket.period), g.bucket.burst
}

// PauseUntil grants nothing before t, for a downstream that has sent Retry-After. Permits
// return meanwhile, up to the burst. A time that has passed ends the pause.
func (g *Gate) PauseUntil(t time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.advanceLocked()
	g.paused = at + max(0, int64(time.Until(t)))
	if g.paused < at { // overflow
		g.paused = math.MaxInt64
	}
	g.serveLocked()
}

// after returns the Delay of n for an error, 0 if the gate never grants n.
func (g *Gate) after(n int64) time.Duration {
	if d := g.Delay(n); d < math.MaxInt64 {
		return d
	}
	return 0
}

// fault returns the error of a caller, with the figures.
func (g *Gate) fault(op string, n int64, err error, detail string) *sema.Error {
	st := g.Stats()
	fault := &sema.Error{Op: op, Name: g.settings.Name, Weight: n, Capacity: st.Capacity, InUse: st.InUse, Waiters: st.Waiters, Err: err, Detail: detail}
	switch err {
	case sema.ErrFull, sema.ErrQueueFull:
		fault.After = g.after(n)
	case sema.ErrTimeout: // nothing is held that could be released
		fault.After, fault.Advice = g.after(n), "send fewer requests, or raise the rate or MaxWait"
	case sema.ErrTooLarge:
		fault.Advice = "split the request, or raise the burst"
	}
	return fault
}
