package fleet

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A call is one Acquire or TryAcquire.
type call struct {
	op     string
	req    protocol.Op
	start  time.Time
	wait   sema.Wait
	queued bool // that it waits was reported

	// Guarded by Semaphore.mu, see tally.
	waits, waited bool
	since         time.Duration
}

// weight returns how many permits the caller asked for.
func (c *call) weight() int64 { return cmp.Or(c.req.Least, c.req.Weight) }

// noteQueued reports, once, that the caller waits.
func (c *call) noteQueued() {
	if !c.queued {
		c.queued = true
		c.wait.Queued()
	}
}

// Acquire waits for n permits, in order of arrival among all machines. It fails
//
//   - with the context's cause as soon as ctx ends;
//   - with ErrTimeout when [sema.MaxWait] has passed;
//   - with ErrUnavailable when the store does not reply for [UnavailableAfter], or for
//     MaxWait if that is shorter;
//   - with [io/fs.ErrNotExist] if the semaphore was opened as [Existing] and is not;
//   - and like [sema.Semaphore.Acquire].
func (s *Semaphore) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	if g := s.front.Load(); g != nil && n > 0 && ctx != nil {
		if p, err := g.local.TryAcquire(ctx, n); err == nil {
			return p, nil
		}
	}
	c := call{op: "acquire", req: protocol.Op{Verb: protocol.Acquire, Weight: n}, start: time.Now(), wait: s.monitor.Begin(ctx, n)}
	return s.acquire(ctx, &c)
}

// TryAcquire takes n permits if they are free and no caller waits, or else fails
// with ErrFull. It sends one batch and never queues. Where the store cannot decide
// yet, since a holder may have expired or the store has restarted, it fails with
// ErrFull or ErrUnavailable and the error's After is positive: the client asks the
// store until then, so that the next try is final. It fails with ErrUnavailable if
// the store does not reply within TryTimeout.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	if g := s.front.Load(); g != nil && n > 0 && ctx != nil {
		if p, err := g.local.TryAcquire(ctx, n); err == nil {
			return p, nil
		}
	}
	c := call{op: "try", req: protocol.Op{Verb: protocol.Acquire, Weight: n, Try: true}, start: time.Now(), wait: s.monitor.BeginTry(ctx, n)}
	return s.acquire(ctx, &c)
}

// lease takes a block for a region, which lends it on.
func (s *Semaphore) lease(ctx context.Context, weight, least int64) (sema.Permit, error) {
	c := call{op: "lease", req: protocol.Op{Verb: protocol.Acquire, Weight: weight, Least: least, Pooled: true}, start: time.Now()}
	return s.acquire(ctx, &c)
}

// errFailedOpen ends waits at the store, to go on at the local limit.
var errFailedOpen = errors.New("failed open")

// errRecovered ends waits at the local limit, to go on at the store.
var errRecovered = errors.New("the store replies again")

func (s *Semaphore) acquire(ctx context.Context, c *call) (permit sema.Permit, err error) {
	switch {
	case ctx == nil:
		err = s.fault(c.op, c.weight(), sema.ErrInvalid, "nil context")
	case c.req.Weight < 0:
		err = s.fault(c.op, c.weight(), sema.ErrInvalid, "negative weight")
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		permit, err = s.admit(ctx, c)
	}
	if err != nil {
		s.fail(c, err)
		return sema.Permit{}, c.wait.Failed(err)
	}
	return permit, nil
}

// admit acquires from the store, or from the local limit while that applies.
func (s *Semaphore) admit(ctx context.Context, c *call) (permit sema.Permit, err error) {
	for {
		if s.settings.mode == ModePooled {
			permit, err = s.acquirePooled(ctx, c)
		} else {
			permit, err = s.acquireExact(ctx, c)
		}
		if err != errFailedOpen {
			return permit, err
		}
		if permit, err = s.acquireFailedOpen(ctx, c); err != errRecovered {
			return permit, err
		}
	}
}

// acquireExact asks the store and waits. There is no lease for a weight of 0.
func (s *Semaphore) acquireExact(ctx context.Context, c *call) (sema.Permit, error) {
	if deadline, ok := ctx.Deadline(); ok {
		c.req.Wait = max(1, protocol.Micros(time.Until(deadline).Microseconds()))
	}
	c.req.Details = s.details()
	if err := s.expectQueue(c); err != nil {
		return sema.Permit{}, err
	}
	w := s.newWaiter(c, c.req)
	// A caller whose context cannot be cancelled, and that may wait for longer than a
	// reply takes, may send the batch itself.
	w.carries = ctx.Done() == nil && (s.settings.maxWait == 0 || s.settings.maxWait > replyTimeout) && s.settings.unavailableAfter > replyTimeout
	if err := s.ask(c.op, w); err != nil || c.req.Weight == 0 {
		return sema.Permit{}, err
	}
	if w.carries {
		s.carry()
	}
	r, err := s.await(ctx, c, w)
	if err != nil {
		return sema.Permit{}, err
	}
	if r.lease.grant.block { // of a region, which may be less than it asked for
		return sema.NewPermit(r.lease.weight, r.lease), nil
	}
	return c.wait.Leased(r.lease), nil
}

// expectQueue reports that the caller waits, if it will have to as far as is known
// here: before it is queued, so that an observer that is slow delays no other caller.
// It fails if nothing is granted.
func (s *Semaphore) expectQueue(c *call) error {
	if s.monitor == nil || c.req.Try || c.weight() == 0 {
		return nil
	}
	s.mu.Lock()
	err := s.admitsLocked(c.op, c.weight())
	known := s.knownLocked()
	full := s.peer != nil && (known.Waiters > 0 || known.Free < c.weight()) && !s.tooLarge(c.weight())
	s.mu.Unlock()
	if err == nil && full {
		c.noteQueued()
	}
	return err
}

// newWaiter returns what waits for the result of a request.
func (s *Semaphore) newWaiter(c *call, req protocol.Op) *waiter {
	w := &waiter{op: req, call: c, ended: make(chan result, 1)}
	if s.monitor != nil {
		w.queued = make(chan struct{}, 1)
	}
	return w
}

// await waits for the result of a request. A caller that does not want the permit any
// more does not keep it.
func (s *Semaphore) await(ctx context.Context, c *call, w *waiter) (result, error) {
	select {
	case r := <-w.ended: // already
		return s.conclude(ctx, c, w, r)
	default:
	}
	wanted := true
	defer func() {
		if wanted { // an observer has panicked
			s.withdraw(w)
		}
	}()
	left, _ := s.overdue(c)
	limit := time.NewTimer(left)
	defer limit.Stop()
	for {
		select {
		case r := <-w.ended:
			wanted = false
			return s.conclude(ctx, c, w, r)
		case <-w.queued:
			s.noteQueuedLate(c)
		case <-ctx.Done():
			wanted = false
			s.withdraw(w)
			return result{}, context.Cause(ctx)
		case <-limit.C:
			left, err := s.overdue(c)
			if err == nil {
				limit.Reset(left)
				continue
			}
			wanted = false
			s.withdraw(w)
			return result{}, err
		}
	}
}

// noteQueuedLate reports that a caller waits that is counted as a waiter already.
func (s *Semaphore) noteQueuedLate(c *call) {
	s.addUncounted(1)
	defer s.addUncounted(-1)
	c.noteQueued()
}

func (s *Semaphore) addUncounted(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uncounted += n
}

// overdue returns for how long a call may wait before it asks again, or why it waits no
// longer.
func (s *Semaphore) overdue(c *call) (left time.Duration, err error) {
	set, waited := s.settings, time.Since(c.start)
	if c.op == "try" { // it waits for a reply, not for its turn
		most := set.tryTimeout
		if set.maxWait > 0 {
			most = min(most, set.maxWait)
		}
		if waited >= most {
			return 0, s.silence(c)
		}
		return most - waited, nil
	}
	s.mu.Lock()
	silent := s.driver.silentFor(c.start)
	s.mu.Unlock()
	switch {
	case set.maxWait > 0 && waited >= set.maxWait:
		return 0, s.timeout(c)
	case silent >= set.unavailableAfter:
		return 0, s.silence(c)
	case set.maxWait > 0:
		return min(set.unavailableAfter-silent, set.maxWait-waited), nil
	}
	return set.unavailableAfter - silent, nil
}

// conclude returns what a caller gets of a result.
func (s *Semaphore) conclude(ctx context.Context, c *call, w *waiter, r result) (result, error) {
	if w.op.Wait > 0 && errors.Is(r.err, sema.ErrTimeout) {
		<-ctx.Done() // the store's clock was ahead; this is about the context's deadline
	}
	switch {
	case ctx.Err() != nil:
		if r.lease != nil {
			r.lease.giveBack()
		}
		return result{}, context.Cause(ctx)
	case r.err == errFailedOpen:
		return result{}, errFailedOpen
	case r.err != nil:
		fault := s.rejection(c.op, c.weight(), r.err).(*sema.Error)
		if fault.After = r.after; fault.After > 0 && errors.Is(r.err, sema.ErrUnavailable) {
			fault.Detail = "the store has restarted and does not know yet what is held"
		}
		return result{}, fault
	}
	return r, nil
}
