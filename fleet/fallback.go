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

// A fallback is a semaphore's local limit, see [FailOpen]. A nil one never applies.
type fallback struct {
	local        *sema.Semaphore
	after, until protocol.Micros
	open         atomic.Bool
	reign        atomic.Pointer[reign] // the present one, or the last

	// Guarded by Semaphore.mu.
	silent protocol.Micros // since when there was no answer; 0: there was one
	good   protocol.Micros // since when there are answers again, while it rules
	probe  protocol.Micros // when to ask for one
}

func newFallback(set *settings) *fallback {
	f := set.failOpen
	if f.limit == 0 {
		return nil
	}
	return &fallback{
		local: sema.New(f.limit, sema.Name(set.label), sema.Diagnose(sema.DiagnoseOff)), // its permits are reported by the fleet semaphore's monitor
		after: protocol.Micros(f.after.Microseconds()), until: protocol.Micros(f.until.Microseconds()),
	}
}

// A reign is one time for which the local limit rules. Who waits for that until
// then goes on at the engine.
type reign struct {
	life context.Context
	end  context.CancelFunc
}

func (f *fallback) rules() bool { return f != nil && f.open.Load() }

func (f *fallback) beginReign() {
	life, end := context.WithCancel(context.Background())
	f.reign.Store(&reign{life, end})
}

// sendBack has those who wait for the local limit ask anew. The semaphore's mutex
// is held.
func (f *fallback) sendBack() {
	if f.rules() {
		over := f.reign.Load()
		f.beginReign()
		over.end()
	}
}

// acquireFailedOpen takes permits of the local limit. MaxWait is for both waits
// together.
func (s *Semaphore) acquireFailedOpen(ctx context.Context, c *call) (sema.Permit, error) {
	local := s.fallback.local
	p, err := local.TryAcquire(ctx, c.weight())
	if c.req.Try || !errors.Is(err, sema.ErrFull) {
		return s.issue(c, p, err)
	}
	c.noteQueued()
	s.mu.Lock()
	s.tally.queue(c)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.tally.unqueue(c)
		s.mu.Unlock()
	}()
	wait, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	if most := s.settings.maxWait; most > 0 {
		defer time.AfterFunc(time.Until(c.start.Add(most)), func() { leave(sema.ErrTimeout) }).Stop()
	}
	defer context.AfterFunc(s.fallback.reign.Load().life, func() { leave(errRecovered) })()
	p, err = local.Acquire(wait, c.weight())
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == sema.ErrTimeout:
		err = s.timeout(c)
	}
	return s.issue(c, p, err)
}

// stats is of the local limit.
func (f *fallback) stats() sema.Stats {
	if f == nil {
		return sema.Stats{}
	}
	return f.local.Stats()
}

// forget is when nobody wants an answer: what was not answered long ago is no
// silence. The semaphore's mutex is held.
func (f *fallback) forget() {
	if f != nil && !f.open.Load() {
		f.silent = 0
	}
}

// close refuses who waits or comes. The semaphore's mutex is held.
func (f *fallback) close() {
	if f != nil {
		f.local.Close()
	}
}

// replyTimeout returns how long a reply may take: not so long that one lost message
// counts as a store that does not reply.
func (f *fallback) replyTimeout() time.Duration {
	if f == nil {
		return replyTimeout
	}
	return min(replyTimeout, micros(f.after/3))
}

// failed notes that an exchange which began at some time brought no answer, and
// says when to look again. The semaphore's mutex is held.
func (f *fallback) failed(s *Semaphore, began, now protocol.Micros) time.Duration {
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
	f.beginReign()
	f.open.Store(true)
	s.publish()
	s.refuseAll(errFailedOpen)
	s.tellLater(sema.Event{Kind: sema.EventFailedOpen, Capacity: s.settings.failOpen.limit, Err: s.fault("renew", 0, sema.ErrUnavailable, s.driver.trouble.Error())})
	return math.MaxInt64
}

// answered notes an answer. The semaphore's mutex is held.
func (f *fallback) answered(s *Semaphore, now protocol.Micros) {
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
		f.reign.Load().end()
		f.good = 0
		s.publish()
		s.tellLater(sema.Event{Kind: sema.EventRecovered, Capacity: s.capacity.Load()})
	}
}

// probeDue reports whether the engine is to be asked whether it is there. The
// semaphore's mutex is held.
func (f *fallback) probeDue(now protocol.Micros) bool { return f.rules() && now >= f.probe }

// due is when it will be.
func (f *fallback) due() (at protocol.Micros, any bool) {
	if !f.rules() {
		return 0, false
	}
	return f.probe, true
}
