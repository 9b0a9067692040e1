package wfq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sema-go/sema"
)

// Over returns a fair queue in front of another gate: callers wait here by class, and at
// most inflight permits of the gate are held, or waited for, through this queue. A small
// inflight decides late, and so lets a caller of a higher tier or an underserved class
// overtake more of the others; a large one keeps a distant gate busy. Permits of a rate are spent
// when they are granted, so for these inflight bounds only the callers that wait at the
// gate. Over panics if gate is nil or inflight is negative.
func Over(gate sema.Gate, inflight int64, opts ...Option) *Queue {
	if gate == nil {
		panic("wfq: Over(nil): want a gate")
	}
	if inflight < 0 {
		panic(fmt.Sprintf("wfq: Over(%d): inflight is negative; use 0 to pause", inflight))
	}
	q := New(inflight, opts...)
	q.under, q.admits = gate, newAdmission()
	return q
}

// acquireUnder acquires from the gate behind the queue, for a caller that the queue has
// served. The deadline is that of the whole wait; 0: none.
func (c *class) acquireUnder(ctx context.Context, op string, n int64, mayWait, queued bool, deadline int64, watch *sema.Wait) (permit sema.Permit, err error) {
	held := false
	defer func() {
		if !held { // also if the gate panics
			c.unask(n)
		}
	}()
	var p sema.Permit
	if mayWait {
		bounded, cancel := c.q.bound(ctx, deadline)
		defer cancel()
		p, err = c.q.under.Acquire(bounded, n)
		err = c.q.gateError(ctx, bounded, err)
	} else {
		p, err = c.q.under.TryAcquire(ctx, n)
		err = c.q.gateError(ctx, ctx, err)
	}
	if err != nil {
		p.Release() // granted when the context ended
		c.q.lock()
		if mayWait && !queued {
			c.counts.Waited++
			c.q.counts.Waited++
		}
		c.countLocked(err, mayWait)
		c.q.unlock()
		return c.conclude(op, n, watch, err)
	}
	held = true
	c.asked(n, !p.Held())
	if p.Held() {
		c.leased.Add(1)
		return watch.Leased(&overLease{c, p, n}), nil
	}
	watch.Granted(&c.issuer).Release()
	return p, nil
}

// asked ends the time in which permits are acquired from the gate behind the queue. The
// class is not charged for it: it waits, and cannot use them.
//
// Permits of a rate are spent, and held for no time. Their use is the mean time of a caller
// at the gate, which is the same for all classes: so classes share the rate by number, and
// are not charged for the delay of a single caller.
func (c *class) asked(n int64, spent bool) {
	q := c.q
	q.lock()
	defer q.unlock()
	q.spends = spent
	c.integrateLocked()
	c.asking -= n
	if spent && q.waiters > 0 {
		work := float64(n) * q.hold.mean(0)
		c.chargeLocked(work)
		c.hold.used(work)
	}
	c.placeLocked()
}

// unask returns permits of the queue for which the gate behind it granted none.
func (c *class) unask(n int64) {
	c.q.lock()
	defer c.q.unlock()
	c.integrateLocked()
	c.asking -= n
	c.inUse.Add(-n)
	c.q.free += n
	c.placeLocked()
}

// An admission ends when the queue is drained or closed. Callers that wait at the gate
// behind it are rejected then.
type admission struct {
	ctx    context.Context
	reject context.CancelFunc
}

func newAdmission() (a admission) {
	a.ctx, a.reject = context.WithCancel(context.Background())
	return a
}

// errDeadline is the cause for which a wait at the gate ends at the deadline.
var errDeadline = errors.New("the wait at the gate took too long")

// bound returns a context for a wait at the gate behind the queue. It ends at the deadline,
// if that is not 0, and when the queue is drained or closed.
func (q *Queue) bound(ctx context.Context, deadline int64) (context.Context, context.CancelFunc) {
	q.mu.Lock()
	admits := q.admits.ctx
	q.mu.Unlock()
	bounded, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(admits, func() { cancel(context.Cause(admits)) })
	end := func() bool { return true }
	if deadline != 0 {
		end = time.AfterFunc(time.Duration(deadline-now()), func() { cancel(errDeadline) }).Stop
	}
	return bounded, func() {
		stop()
		end()
		cancel(nil)
	}
}

// gateError returns the error of a caller, given that of the gate behind the queue. A
// caller whose context has ended gets its cause, whatever the gate returned.
func (q *Queue) gateError(ctx, bounded context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return cancelled{context.Cause(ctx)}
	case err == nil || bounded.Err() == nil:
		return err
	case errors.Is(context.Cause(bounded), errDeadline):
		return &detailed{sema.ErrTimeout, "at the gate behind the queue"}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if phase := q.phaseErrorLocked(); phase != nil {
		return phase
	}
	return sema.ErrDraining // resumed meanwhile
}

// An overLease is a permit of the gate behind a queue, with as many permits of the queue.
type overLease struct {
	class *class
	under sema.Permit
	n     int64 // permits of the queue
}

// Release implements [sema.Lease].
func (l *overLease) Release() {
	defer (*classOwner)(l.class).TakeBack(l.n)
	l.under.Release()
}

// Split implements the splitting of a [sema.Lease].
func (l *overLease) Split(n int64) (first, rest sema.Lease, err error) {
	a, b, err := l.under.Split(n)
	if err != nil {
		return nil, nil, err
	}
	return &overLease{l.class, a, n}, &overLease{l.class, b, l.n - n}, nil
}

// Lost returns the channel of the gate behind the queue.
func (l *overLease) Lost() <-chan struct{} { return l.under.Lost() }

// Err returns the error of the gate behind the queue.
func (l *overLease) Err() error { return l.under.Err() }

// Name returns the name of the queue.
func (l *overLease) Name() string { return l.class.q.settings.Name }
