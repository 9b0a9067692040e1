package posix

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/internal/tally"
)

// A Gate is a [sema.Gate] backed by a semaphore: Acquire calls Wait, and releasing the
// permit calls Post, also after Close. Create it with [AsGate]. All methods may be
// called concurrently.
//
// Permits have weight 1. A higher weight is [sema.ErrTooLarge], whatever the capacity:
// POSIX cannot acquire several permits at once, and callers that acquire them one by
// one can deadlock.
type Gate struct {
	s        *Semaphore
	name     string
	capacity int64
	maxWait  time.Duration // 0: no bound
	monitor  *sema.Monitor // nil unless observed or diagnosed
	issuer   sema.Issuer
	tally    tally.Tally
}

var _ sema.Gate = (*Gate)(nil)

// AsGate returns a gate backed by s. The capacity is the value of the semaphore while
// no permit is held: the value it was created with. POSIX does not store the capacity,
// so all programs must agree on it. [Gate.Stats] computes the permits in use from it.
//
// The option [sema.MaxWaiters] is [sema.ErrInvalid]: the bound is stored with a
// semaphore, and POSIX stores only a value.
func AsGate(s *Semaphore, capacity int64, opts ...sema.SharedOption) (*Gate, error) {
	const op = "gate"
	if s == nil {
		return nil, newError(op, "", sema.ErrInvalid, "nil semaphore")
	}
	set := sema.SettingsOf(opts...)
	switch value := int64(s.Value()); {
	case set.MaxWaiters != 0:
		return nil, newHintedError(op, s.name, sema.ErrInvalid, "MaxWaiters: a POSIX semaphore stores no bound of waiters", "leave the option out, or use package host")
	case capacity < 1 || capacity > MaxValue:
		return nil, newHintedError(op, s.name, sema.ErrInvalid, fmt.Sprintf("capacity %d", capacity), fmt.Sprintf("use 1 to %d", MaxValue))
	case value > capacity:
		return nil, newHintedError(op, s.name, sema.ErrInvalid, fmt.Sprintf("capacity %d, and the value is %d", capacity, value), "use the value that the semaphore was created with")
	}
	g := &Gate{s: s, name: s.name, capacity: capacity, maxWait: set.MaxWait}
	if set.Name != "" {
		g.name = set.Name
	}
	g.monitor = sema.NewMonitor(g, append([]sema.SharedOption{sema.Name(g.name)}, opts...)...)
	g.issuer.Init((*gateOwner)(g), g.monitor)
	return g, nil
}

// A gateOwner implements [sema.Owner] for a Gate.
type gateOwner Gate

// TakeBack implements [sema.Owner]. It posts even if the semaphore is closed, so that a
// permit is not lost if the semaphore was closed first. The post cannot exceed the
// maximum, unless another program posts without a wait.
func (g *gateOwner) TakeBack(int64) { g.s.memory.post() }

// Name implements [sema.Owner].
func (g *gateOwner) Name() string { return g.name }

// Name returns the name set by the option [sema.Name]. Default: the name of the
// semaphore.
func (g *Gate) Name() string { return g.name }

// Scope returns [sema.HostScope], by which [sema.AcquireAll] orders the gate.
func (g *Gate) Scope() sema.Scope { return sema.HostScope }

// Acquire waits for a permit; n must be 1 or 0. It fails like [Semaphore.Wait], with
// [sema.ErrTimeout] (option MaxWait), and with [sema.ErrTooLarge] and
// [sema.ErrInvalid] for other weights.
func (g *Gate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "acquire"
	wait := g.monitor.Begin(ctx, n)
	if err := g.rejects(ctx, op, n); err != nil || n == 0 {
		return g.conclude(&wait, false, n, err)
	}
	if g.s.TryWait() {
		return g.conclude(&wait, false, n, nil)
	}
	wait.Queued()
	g.tally.Queued()
	err := g.wait(ctx, op)
	g.tally.Dequeued()
	if err == errMaxWait {
		err = g.newError(op, n, sema.ErrTimeout, g.maxWait.String())
	}
	return g.conclude(&wait, true, n, err)
}

// wait waits in the kernel. After MaxWait it fails with errMaxWait.
func (g *Gate) wait(ctx context.Context, op string) error {
	limited := ctx
	if g.maxWait > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, g.maxWait, errMaxWait)
		defer cancel()
	}
	err := g.s.wait(limited, op)
	if err == errMaxWait && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// errMaxWait is the cause of a context that ended because of MaxWait.
var errMaxWait = errors.New("MaxWait elapsed")

// TryAcquire acquires a permit if the value is not 0. Otherwise it fails with ErrFull,
// or like Acquire.
func (g *Gate) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "try"
	wait := g.monitor.BeginTry(ctx, n)
	err := g.rejects(ctx, op, n)
	if err == nil && n > 0 && !g.s.TryWait() {
		err = g.newError(op, n, sema.ErrFull, "")
	}
	return g.conclude(&wait, false, n, err)
}

// rejects returns the error of a call that fails without trying to acquire, or nil.
func (g *Gate) rejects(ctx context.Context, op string, n int64) error {
	switch {
	case ctx == nil:
		return g.newError(op, n, sema.ErrInvalid, "nil context")
	case n < 0:
		return g.newError(op, n, sema.ErrInvalid, "negative weight")
	case ctx.Err() == nil && n > 1:
		err := g.newError(op, n, sema.ErrTooLarge, "a POSIX semaphore grants one permit at a time")
		err.Advice = "acquire 1, or use package host for weights"
		return err
	}
	return g.s.rejection(ctx, op)
}

func (g *Gate) conclude(wait *sema.Wait, queued bool, n int64, err error) (sema.Permit, error) {
	switch {
	case err != nil:
		g.tally.Failed(err, queued)
		return sema.Permit{}, wait.Failed(err)
	case n == 0:
		return sema.Permit{}, nil
	}
	g.tally.Acquired()
	return wait.Granted(&g.issuer), nil
}

func (g *Gate) newError(op string, n int64, err error, detail string) *sema.Error {
	st := g.Stats()
	return &sema.Error{Op: op, Name: g.name, Weight: n, Err: err, Detail: detail, Capacity: st.Capacity, InUse: st.InUse, Waiters: st.Waiters}
}

// Stats returns the state of the semaphore, computed from its value, and the counters
// of g. Another process that uses this package counts as one waiter; this process
// counts every waiting call. After Close all permits count as free.
func (g *Gate) Stats() sema.Stats {
	st := sema.Stats{Capacity: g.capacity, Free: g.capacity, Closed: !g.s.open.Load(), Counts: g.tally.Counts()}
	if !st.Closed {
		word := g.s.memory.load()
		st.Free = int64(valueOf(word))
		st.InUse = max(0, g.capacity-st.Free) // programs that post without a wait may exceed the capacity
		st.Waiters = max(int(waitersOf(word)), g.tally.Waiting())
	}
	return st
}

// Resize fails with [errors.ErrUnsupported]: POSIX stores no capacity.
func (g *Gate) Resize(ctx context.Context, _ int64) error {
	return g.unsupported(ctx, "resize", "a POSIX semaphore stores no capacity")
}

// Drain fails with [errors.ErrUnsupported]: POSIX stores no state.
func (g *Gate) Drain(ctx context.Context) error {
	return g.unsupported(ctx, "drain", "a POSIX semaphore stores no state")
}

// Resume fails with [errors.ErrUnsupported]: POSIX stores no state.
func (g *Gate) Resume(ctx context.Context) error {
	return g.unsupported(ctx, "resume", "a POSIX semaphore stores no state")
}

func (g *Gate) unsupported(ctx context.Context, op, detail string) error {
	if ctx == nil {
		return g.newError(op, 0, sema.ErrInvalid, "nil context")
	}
	err := g.newError(op, 0, errors.ErrUnsupported, detail)
	err.Advice = "use package host"
	return err
}

// Close closes the semaphore of the gate, see [Semaphore.Close].
func (g *Gate) Close() error {
	open := g.s.open.Load()
	err := g.s.Close()
	if open {
		g.monitor.Report(sema.Event{Kind: sema.EventClosed})
	}
	return err
}
