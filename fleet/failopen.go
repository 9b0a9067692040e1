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

// failOpen is the local limit of a semaphore, see [FailOpen]. If nil, it never applies.
type failOpen struct {
	*session
	local        *sema.Semaphore
	after, until protocol.Micros
	open         atomic.Bool
	period       atomic.Pointer[period] // the current one, or the last

	// Guarded by session.mu.
	unresponsiveSince protocol.Micros // when the first request without a reply was sent; 0: the store replies
	replyingSince     protocol.Micros // while the limit applies: when replies began again; 0: none yet
	probeAt           protocol.Micros // while the limit applies: when to send the next heartbeat
}

func newFailOpen(s *session) *failOpen {
	set := s.settings
	f := set.failOpen
	if f.limit == 0 {
		return nil
	}
	return &failOpen{
		session: s, local: sema.New(f.limit, sema.Name(set.label), sema.Diagnose(sema.DiagnoseOff)), // the fleet semaphore's monitor reports its permits
		after: protocol.Micros(f.after.Microseconds()), until: protocol.Micros(f.until.Microseconds()),
	}
}

// A period is a time during which the local limit applies. Callers that still wait when
// it ends continue at the store.
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

// requeueLocked makes callers that wait at the local limit check again whether to wait.
func (f *failOpen) requeueLocked() {
	if f.applies() {
		over := f.period.Load()
		f.beginPeriod()
		over.end()
	}
}

// acquire acquires from the local limit. MaxWait covers the waits at the store and here.
func (f *failOpen) acquire(ctx context.Context, c *call) (sema.Permit, error) {
	p, err := f.local.TryAcquire(ctx, c.weight())
	if c.req.Try || !errors.Is(err, sema.ErrFull) {
		return f.permit(c, p, err)
	}
	c.noteQueued()
	of := f.period.Load()
	if err := f.stillApplies(c); err != nil { // observers ran meanwhile
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
	case ctx.Err() != nil: // a custom context may end before wait does
		p.Release()
		p = sema.Permit{}
		err = context.Cause(ctx)
	case err == sema.ErrTimeout:
		err = f.timeoutError(c)
	}
	return f.permit(c, p, err)
}

// permit returns the permit for the caller: p or, of a rate, one that is spent.
func (f *failOpen) permit(c *call, p sema.Permit, err error) (sema.Permit, error) {
	if window := f.window(); window > 0 && err == nil && p.Weight() > 0 {
		return c.wait.Leased(f.spend(p, time.Now().Add(window))), nil
	}
	return f.issue(c, p, err)
}

// stillApplies fails if the call should not wait at the local limit.
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

// stats returns the state of the local semaphore.
func (f *failOpen) stats() sema.Stats {
	if f == nil {
		return sema.Stats{}
	}
	return f.local.Stats()
}

// forgetLocked notes that no caller waits for a reply. An earlier request without a reply
// does not count any more.
func (f *failOpen) forgetLocked() {
	if f != nil && !f.open.Load() {
		f.unresponsiveSince = 0
	}
}

// closeLocked rejects waiters and new acquires of the local limit.
func (f *failOpen) closeLocked() {
	if f != nil {
		f.local.Close()
	}
}

// replyTimeout returns how long to wait for a reply. It is at most a third of FailOpenAfter,
// so that one lost message does not make the limit apply.
func (f *failOpen) replyTimeout() time.Duration {
	if f == nil {
		return replyTimeout
	}
	return min(replyTimeout, micros(f.after/3))
}

// failedLocked notes that an exchange, which began at began, got no reply. It returns the
// time until the limit may apply.
func (f *failOpen) failedLocked(began, now protocol.Micros) time.Duration {
	if f == nil {
		return math.MaxInt64
	}
	f.replyingSince = 0
	if f.unresponsiveSince == 0 {
		f.unresponsiveSince = began
	}
	if f.open.Load() {
		return math.MaxInt64
	}
	if left := f.unresponsiveSince + f.after - now; left > 0 {
		return micros(left)
	}
	f.beginPeriod()
	f.open.Store(true)
	f.strategy.reconfiguredLocked()
	f.rejectAllLocked(errFailedOpen)
	f.report(sema.Event{Kind: sema.EventFailedOpen, Capacity: f.settings.failOpen.limit, Err: f.fault("renew", 0, sema.ErrUnavailable, f.driver.lastErr.Error())})
	return math.MaxInt64
}

// repliedLocked notes a reply. The limit ends when the store has replied for RecoverAfter.
func (f *failOpen) repliedLocked(now protocol.Micros) {
	if f == nil {
		return
	}
	f.unresponsiveSince = 0
	if !f.open.Load() {
		return
	}
	if f.replyingSince == 0 {
		f.replyingSince = now
	}
	f.probeAt = now + f.until/4
	if now-f.replyingSince >= f.until {
		f.open.Store(false)
		f.period.Load().end()
		f.replyingSince = 0
		if f.isRateLocked() {
			f.oweLocked(f.local.Stats().InUse) // what was granted here in the window counts at the store
		}
		f.strategy.reconfiguredLocked()
		f.report(sema.Event{Kind: sema.EventRecovered, Capacity: f.capacity.Load()})
	}
}

// probeDueLocked returns when to send the next heartbeat while the limit applies, else 0.
func (f *failOpen) probeDueLocked() protocol.Micros {
	if !f.applies() {
		return 0
	}
	return f.probeAt
}
