package fleet

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// FailOpen is how a semaphore behaves when its engine does not answer. The zero
// value fails closed: acquires wait, and fail with ErrUnavailable in the end.
//
// With a Limit, this process goes on by itself: it lends that many permits of its
// own, so that a fleet of N processes may have N × Limit out, besides what
// others still hold of the engine's. Permits that were had before are lost when
// they cannot be renewed, whatever the policy; those that are had meanwhile
// cannot be lost, and stay valid when the engine is back.
type FailOpen struct {
	Limit int64         // permits of this process's own meanwhile; 0: fail closed
	After time.Duration // of silence it begins; the TTL unless told
	Until time.Duration // the engine has answered for so long, without a failure, it ends; as After unless told
}

// A fallback is a semaphore's local limit. A nil one never rules.
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

func newFallback(name string, o Options) *fallback {
	if o.FailOpen.Limit == 0 {
		return nil
	}
	return &fallback{
		local: sema.New(o.FailOpen.Limit, sema.Name(name)),
		after: protocol.Micros(o.FailOpen.After.Microseconds()), until: protocol.Micros(o.FailOpen.Until.Microseconds()),
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

// acquireAside takes permits of the local limit. MaxWait is for both waits
// together.
func (s *Semaphore) acquireAside(ctx context.Context, op string, wish protocol.Op, start time.Time) (sema.Permit, error) {
	if wish.Try {
		return s.fallback.local.TryAcquire(ctx, wish.Weight)
	}
	limited, cancel := context.WithDeadlineCause(ctx, start.Add(s.options.MaxWait), sema.ErrTimeout)
	defer cancel()
	wait, leave := context.WithCancelCause(limited)
	defer leave(nil)
	defer context.AfterFunc(s.fallback.reign.Load().life, func() { leave(errBack) })()
	p, err := s.fallback.local.Acquire(wait, wish.Weight)
	if err == sema.ErrTimeout && ctx.Err() == nil {
		err = s.timeout(op, wish.Weight, start)
	}
	return p, err
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

// patience is how long an answer may take: not so long that one lost message
// makes for a silence.
func (f *fallback) patience() time.Duration {
	if f == nil {
		return patience
	}
	return min(patience, micros(f.after/3))
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
	s.refuseAll(errAside)
	s.tellLater(sema.Event{Kind: sema.EventFailedOpen, Capacity: s.options.FailOpen.Limit, Err: s.fault("renew", 0, sema.ErrUnavailable, s.driver.trouble.Error())})
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
