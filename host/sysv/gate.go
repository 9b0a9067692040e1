package sysv

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/internal/tally"
)

// A Gate is a [sema.Gate] backed by one semaphore of a set: its value is the number of
// free permits. Create it with [AsGate]. All methods may be called concurrently.
//
// The kernel releases the permits of a process that ends, as with [Op].Undo. Permits
// leaked by a goroutine stay held until then. If the set is removed, releasing a held
// permit has no effect, and its Err returns [sema.ErrLost].
//
// The goroutines of a process that use the same Gate are served in order of arrival,
// weights included. At most one of them waits in the kernel, which blocks a thread.
// Among processes the order is that of the kernel, which serves the waiters that fit;
// see the package documentation.
type Gate struct {
	set      *Set
	num      int
	name     string
	capacity int64
	maxWait  time.Duration // 0: no bound
	monitor  *sema.Monitor // nil unless observed or diagnosed
	issuer   sema.Issuer
	tally    tally.Tally

	// waiting counts the callers that found too few permits free and are not served
	// yet. While it is above 0, later callers of this process wait behind them.
	waiting atomic.Int64
	// turnstile admits one of these callers at a time to wait in the kernel.
	turnstile *sema.Semaphore

	closing context.Context // ended by Close
	end     context.CancelFunc
}

var _ sema.Gate = (*Gate)(nil)

// AsGate returns a gate backed by semaphore num of the set. The capacity, at most
// [MaxValue], is the value of the semaphore while no permit is held: the value it was
// created with. The kernel does not store the capacity, so all programs must agree on
// it. Use one Gate per semaphore and process.
//
// The option [sema.MaxWaiters] is [sema.ErrInvalid]: the bound is stored with a
// semaphore, and the kernel stores only a value.
func AsGate(set *Set, num int, capacity int64, opts ...sema.SharedOption) (*Gate, error) {
	verb := fmt.Sprintf("gate of semaphore %d, capacity %d", num, capacity)
	if capacity < 1 || capacity > MaxValue {
		return nil, invalid(set.label(), verb, "capacity out of range", fmt.Sprintf("use 1 to %d", MaxValue))
	}
	settings := sema.SettingsOf(opts...)
	if settings.MaxWaiters != 0 {
		return nil, invalid(set.label(), verb, "MaxWaiters: the kernel stores no bound of waiters", "leave the option out, or use package host")
	}
	value, err := set.Value(num)
	if err != nil {
		return nil, err
	}
	if int64(value) > capacity {
		return nil, invalid(set.label(), verb, fmt.Sprintf("the value is %d", value), "use the value that the semaphore was created with")
	}
	g := &Gate{set: set, num: num, capacity: capacity, maxWait: settings.MaxWait, name: settings.Name}
	if g.name == "" {
		g.name = fmt.Sprintf("%s/%d", set.Name(), num)
	}
	g.turnstile = sema.New(1, sema.Diagnose(sema.DiagnoseOff)) // the monitor of the gate reports its waits
	g.closing, g.end = context.WithCancel(context.Background())
	g.monitor = sema.NewMonitor(g, append([]sema.SharedOption{sema.Name(g.name)}, opts...)...)
	g.issuer.Init((*gateOwner)(g), g.monitor)
	return g, nil
}

// A gateOwner implements [sema.Owner] and [sema.Backing] for a Gate.
type gateOwner Gate

var _ sema.Backing = (*gateOwner)(nil)

// TakeBack implements [sema.Owner].
func (g *gateOwner) TakeBack(n int64) { (*Gate)(g).release(n) }

// Name implements [sema.Owner].
func (g *gateOwner) Name() string { return g.name }

// Lost implements [sema.Backing]. It returns nil: there is no notification of a removed
// set.
func (g *gateOwner) Lost() <-chan struct{} { return nil }

// Err implements [sema.Backing]. It returns ErrLost if the set was removed: other
// programs may create a new set and use the guarded resource regardless of this permit.
func (g *gateOwner) Err() error { return (*Gate)(g).removed("hold", sema.ErrLost) }

// Name returns the name set by the option [sema.Name]. Default: the name of the set and
// the number of the semaphore.
func (g *Gate) Name() string { return g.name }

// Scope returns [sema.HostScope], by which [sema.AcquireAll] orders the gate.
func (g *Gate) Scope() sema.Scope { return sema.HostScope }

// Acquire waits for n permits and returns them as one [sema.Permit]. It fails with the
// context's cause, [sema.ErrTimeout] (option MaxWait) or [sema.ErrInvalid]. It fails
// with [sema.ErrTooLarge] if n exceeds the capacity, and with [sema.ErrClosed] if the
// gate is closed or the set removed.
func (g *Gate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "acquire"
	wait := g.monitor.Begin(ctx, n)
	err := g.rejects(ctx, op, n)
	if err != nil || n == 0 {
		return g.conclude(&wait, false, n, err)
	}
	if g.waiting.Load() == 0 {
		if err = g.tryTake(n); err != errWouldWait {
			return g.conclude(&wait, false, n, g.wrapResult(op, n, err))
		}
	}
	wait.Queued()
	g.waiting.Add(1)
	g.tally.Queued()
	err = g.wait(ctx, n)
	g.tally.Dequeued()
	g.waiting.Add(-1)
	return g.conclude(&wait, true, n, g.wrapResult(op, n, err))
}

// Causes that end a wait, besides the cause of the caller's context.
var (
	errMaxWait = errors.New("MaxWait elapsed")
	errClosing = errors.New("closed")
)

// wait waits for the caller's turn, and then in the kernel. It fails with the cause of
// the context, errMaxWait, errClosing, or a reason of the kernel.
func (g *Gate) wait(ctx context.Context, n int64) error {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(g.closing, func() { cancel(errClosing) })()
	if g.maxWait > 0 {
		var stop context.CancelFunc
		limited, stop = context.WithTimeoutCause(limited, g.maxWait, errMaxWait)
		defer stop()
	}
	turn, err := g.turnstile.Acquire(limited, 1)
	if err != nil {
		return err
	}
	defer turn.Release()
	switch err := semWait(limited, g.set.id, g.change(-n)); {
	case limited.Err() == nil && err == nil:
		return nil
	case limited.Err() == nil:
		return g.set.reasonFor(err)
	case err == nil && context.Cause(limited) == errMaxWait && ctx.Err() == nil:
		return nil // granted at the same moment
	case err == nil:
		g.release(n) // a done context never acquires
	}
	return context.Cause(limited)
}

// TryAcquire acquires n permits if they are free and no goroutine of this process
// waits. Otherwise it fails with [sema.ErrFull], or like Acquire. It ignores the
// waiters of other processes.
func (g *Gate) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "try"
	wait := g.monitor.BeginTry(ctx, n)
	err := g.rejects(ctx, op, n)
	if err == nil && n > 0 {
		err = errWouldWait
		if g.waiting.Load() == 0 {
			err = g.tryTake(n)
		}
		err = g.wrapResult(op, n, err)
	}
	return g.conclude(&wait, false, n, err)
}

// rejects returns the error of a call that fails without trying to acquire, or nil.
func (g *Gate) rejects(ctx context.Context, op string, n int64) error {
	switch {
	case ctx == nil:
		return g.newError(op, n, sema.ErrInvalid, nilContext)
	case n < 0:
		return g.newError(op, n, sema.ErrInvalid, "negative weight")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case g.closing.Err() != nil:
		return g.newError(op, n, sema.ErrClosed, "")
	case n > g.capacity:
		return g.newError(op, n, sema.ErrTooLarge, "")
	case n == 0:
		return g.removed(op, sema.ErrClosed)
	}
	return nil
}

// wrapResult returns the error for the result of tryTake or wait.
func (g *Gate) wrapResult(op string, n int64, err error) error {
	switch err {
	case nil:
		return nil
	case errWouldWait:
		return g.newError(op, n, sema.ErrFull, "")
	case errMaxWait:
		return g.newError(op, n, sema.ErrTimeout, g.maxWait.String())
	case errClosing:
		return g.newError(op, n, sema.ErrClosed, "")
	}
	if r, ok := err.(*reason); ok {
		return g.newError(op, n, r, "")
	}
	return err // the cause of the caller's context
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

// removed returns an error with the sentinel if the set was removed, otherwise nil.
func (g *Gate) removed(op string, sentinel error) error {
	if _, err := g.set.Value(g.num); !errors.Is(err, sema.ErrClosed) {
		return nil
	}
	return &sema.Error{Op: op, Name: g.name, Capacity: g.capacity, Err: sentinel, Detail: "the set was removed"}
}

func (g *Gate) newError(op string, n int64, err error, detail string) *sema.Error {
	st := g.Stats()
	return &sema.Error{Op: op, Name: g.name, Weight: n, Err: err, Detail: detail, Capacity: st.Capacity, InUse: st.InUse, Waiters: st.Waiters}
}

// Stats returns the state of the semaphore, computed from its value, and the counters
// of g. It queries the kernel for two numbers, which does not block. In other processes
// each waiting thread counts as one waiter.
func (g *Gate) Stats() sema.Stats {
	st := sema.Stats{Capacity: g.capacity, Free: g.capacity, Closed: g.closing.Err() != nil, Counts: g.tally.Counts()}
	if value, err := g.set.Value(g.num); err == nil {
		st.Free = int64(value)
		st.InUse = max(0, g.capacity-st.Free) // programs that release without an acquire may exceed the capacity
	} else if errors.Is(err, sema.ErrClosed) {
		st.Closed = true
	}
	if inKernel, _, err := g.set.Waiting(g.num); err == nil {
		st.Waiters = inKernel + g.turnstile.Stats().Waiters
	}
	return st
}

// Resize fails with [errors.ErrUnsupported]: the kernel stores no capacity.
func (g *Gate) Resize(ctx context.Context, _ int64) error {
	return g.unsupported(ctx, "resize", "the kernel stores no capacity")
}

// Drain fails with [errors.ErrUnsupported]: the kernel stores no state.
func (g *Gate) Drain(ctx context.Context) error {
	return g.unsupported(ctx, "drain", "the kernel stores no state")
}

// Resume fails with [errors.ErrUnsupported]: the kernel stores no state.
func (g *Gate) Resume(ctx context.Context) error {
	return g.unsupported(ctx, "resume", "the kernel stores no state")
}

func (g *Gate) unsupported(ctx context.Context, op, detail string) error {
	if ctx == nil {
		return g.newError(op, 0, sema.ErrInvalid, nilContext)
	}
	err := g.newError(op, 0, errors.ErrUnsupported, detail)
	err.Advice = "use package host"
	return err
}

// Close closes g: waiters and later calls fail with [sema.ErrClosed]. Held permits can
// still be released. Other processes, and the set, are not affected. Close always
// returns nil.
func (g *Gate) Close() error {
	if g.closing.Err() == nil {
		g.end()
		g.monitor.Report(sema.Event{Kind: sema.EventClosed})
	}
	return nil
}

// tryTake acquires n permits, or fails with errWouldWait or a reason of the kernel.
func (g *Gate) tryTake(n int64) error {
	err := semTry(g.set.id, g.change(-n))
	if err == nil || err == errWouldWait {
		return err
	}
	return g.set.reasonFor(err)
}

// release releases n permits. Raising a value never waits. It fails only in three
// cases: the set was removed, another program raised the value to its maximum, or this
// process lost the permission to change it. The error is ignored: there is nothing to
// release to, or the kernel releases the permits when the process ends.
func (g *Gate) release(n int64) { _ = semTry(g.set.id, g.change(+n)) }

// change returns the operation for an acquire (negative delta) or a release. Both use
// Undo, so that the undo sum of this process is the number of permits that it holds.
func (g *Gate) change(delta int64) []sembuf {
	return []sembuf{{num: uint16(g.num), delta: int16(delta), flags: undoFlag}}
}
