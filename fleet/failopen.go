package fleet

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// failOpen is the local limit of a semaphore, see [FailOpen]. A nil one never applies.
type failOpen struct {
	*session
	local        *sema.Semaphore
	after, until protocol.Micros
	open         atomic.Bool
	period       atomic.Pointer[period] // the present one, or the last

	// Guarded by session.mu.
	silent protocol.Micros // since when there was no reply; 0: there was one
	good   protocol.Micros // since when there are replies again, while it applies
	probe  protocol.Micros // when to ask for one
}

func newFailOpen(s *session) *failOpen {
	set := s.settings
	f := set.failOpen
	if f.limit == 0 {
		return nil
	}
	return &failOpen{
		session: s, local: sema.New(f.limit, sema.Name(set.label), sema.Diagnose(sema.DiagnoseOff)), // its permits are reported by the fleet semaphore's monitor
		after: protocol.Micros(f.after.Microseconds()), until: protocol.Micros(f.until.Microseconds()),
	}
}

// A period is one time for which the local limit applies. Callers that still wait for it
// at the end go on at the store.
type period struct {
	life context.Context
	end  context.CancelFunc
}

// applies reports whether the local limit applies.
func (f *failOpen) applies() bool { return f != nil && f.open.Load() }

func (f *failOpen) beginPeriod() {
	life, end := context.WithCancel(context.Background())
	f.period.Store(&period{life, end})
}

// requeue makes the callers that wait for the local limit ask again. The mutex is held.
func (f *failOpen) requeue() {
	if f.applies() {
		over := f.period.Load()
		f.beginPeriod()
		over.end()
	}
}

// acquire takes permits of the local limit. MaxWait is for both waits together.
func (f *failOpen) acquire(ctx context.Context, c *call) (sema.Permit, error) {
	p, err := f.local.TryAcquire(ctx, c.weight())
	if c.req.Try || !errors.Is(err, sema.ErrFull) {
		return f.issue(c, p, err)
	}
	c.noteQueued()
	of := f.period.Load()
	if err := f.stillApplies(c); err != nil { // it may have changed while observers ran
		return sema.Permit{}, err
	}
	f.queue(c)
	defer f.unqueue(c)
	wait, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	if most := f.settings.maxWait; most > 0 {
		defer time.AfterFunc(time.Until(c.start.Add(most)), func() { leave(sema.ErrTimeout) }).Stop()
	}
	defer context.AfterFunc(of.life, func() { leave(errRecovered) })()
	p, err = f.local.Acquire(wait, c.weight())
	switch {
	case err == nil && ctx.Err() == nil:
	case ctx.Err() != nil: // a context of another kind ends wait a moment later
		p.Release()
		p = sema.Permit{}
		err = context.Cause(ctx)
	case err == sema.ErrTimeout:
		err = f.timeout(c)
	}
	return f.issue(c, p, err)
}

// stillApplies returns why a call does not wait for the local limit.
func (f *failOpen) stillApplies(c *call) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch err := f.admitsLocked(c.op, c.weight()); err {
	case errFailedOpen:
		return nil
	case nil:
		return errRecovered
	default:
		return err
	}
}

func (f *failOpen) queue(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tally.queue(c)
}

func (f *failOpen) unqueue(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tally.unqueue(c)
}

// stats returns the state of the local limit.
func (f *failOpen) stats() sema.Stats {
	if f == nil {
		return sema.Stats{}
	}
	return f.local.Stats()
}

// forget notes that no caller waits for a reply: a request without a reply long ago does
// not count. The mutex is held.
func (f *failOpen) forget() {
	if f != nil && !f.open.Load() {
		f.silent = 0
	}
}

// close rejects waiters and new acquires. The mutex is held.
func (f *failOpen) close() {
	if f != nil {
		f.local.Close()
	}
}

// replyTimeout returns how long a reply may take: not so long that one lost message
// counts as a store that does not reply.
func (f *failOpen) replyTimeout() time.Duration {
	if f == nil {
		return replyTimeout
	}
	return min(replyTimeout, micros(f.after/3))
}

// failed notes that an exchange which began at some time got no reply, and returns when
// to check again. The mutex is held.
func (f *failOpen) failed(began, now protocol.Micros) time.Duration {
	if f == nil {
		return math.MaxInt64
	}
	f.good = 0
	if f.silent == 0 {
		f.silent = began
	}
	if f.open.Load() {
		return math.MaxInt64
	}
	if left := f.silent + f.after - now; left > 0 {
		return micros(left)
	}
	f.beginPeriod()
	f.open.Store(true)
	f.strategy.reconfigured()
	f.rejectAll(errFailedOpen)
	f.report(sema.Event{Kind: sema.EventFailedOpen, Capacity: f.settings.failOpen.limit, Err: f.fault("renew", 0, sema.ErrUnavailable, f.driver.trouble.Error())})
	return math.MaxInt64
}

// answered notes a reply. The mutex is held.
func (f *failOpen) answered(now protocol.Micros) {
	if f == nil {
		return
	}
	f.silent = 0
	if !f.open.Load() {
		return
	}
	if f.good == 0 {
		f.good = now
	}
	f.probe = now + f.until/4
	if now-f.good >= f.until {
		f.open.Store(false)
		f.period.Load().end()
		f.good = 0
		f.strategy.reconfigured()
		f.report(sema.Event{Kind: sema.EventRecovered, Capacity: f.capacity.Load()})
	}
}

// probeDue reports whether the store is to be probed. The mutex is held.
func (f *failOpen) probeDue(now protocol.Micros) bool { return f.applies() && now >= f.probe }

// due returns when it is to be probed, 0 if it is not. The mutex is held.
func (f *failOpen) due() protocol.Micros {
	if !f.applies() {
		return 0
	}
	return f.probe
}
