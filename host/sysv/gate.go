package sysv

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sema-go/sema"
)

// A Gate is one semaphore of a set as a [sema.Gate]: its value is what is free.
// Make it with [AsGate]. All methods may be called concurrently.
//
// The permits of a process that ends without releasing them come back by
// themselves, as with [Op].Undo. Those of a goroutine that forgot them stay
// taken until then. If the set is removed, permits that are out can be released
// still, to no effect, and their Err is [sema.ErrLost].
//
// Among the goroutines of a process that use the same Gate the order is that
// of arrival, weights included, and at most one of them waits in the kernel, on
// a thread of its own. Among processes it is the kernel's, who serves whoever
// fits; see the package's documentation.
type Gate struct {
	set      *Set
	num      int
	capacity int64

	// waiting counts who found too little free and is not served yet. While
	// there is one, nobody else of this process takes anything.
	waiting atomic.Int64
	// turnstile lets one of them at a time wait in the kernel.
	turnstile *sema.Semaphore
}

var _ sema.Gate = (*Gate)(nil)

// AsGate makes a gate of semaphore num of the set. The capacity, at most
// [MaxValue], is the value the semaphore has when nobody holds any of it: what
// it was created with. The kernel does not know it; it is what requests are
// judged against that can never be granted, and all programs should agree on
// it. Use one Gate for a semaphore in each process.
func AsGate(set *Set, num int, capacity int64) (*Gate, error) {
	verb := fmt.Sprintf("gate of semaphore %d, capacity %d", num, capacity)
	if capacity < 1 || capacity > MaxValue {
		return nil, invalid(set.label(), verb, fmt.Sprintf("want a capacity of 1 to %d", MaxValue))
	}
	value, err := set.Value(num)
	if err != nil {
		return nil, err
	}
	if int64(value) > capacity {
		return nil, invalid(set.label(), verb, fmt.Sprintf("its value is %d already; give the capacity it was created with", value))
	}
	g := &Gate{set: set, num: num, capacity: capacity}
	g.turnstile = sema.New(1, sema.Name(g.Name()+" turnstile"))
	return g, nil
}

// Name is the set's and the semaphore's number.
func (g *Gate) Name() string { return fmt.Sprintf("%s/%d", g.set.Name(), g.num) }

// Scope is [sema.HostScope].
func (g *Gate) Scope() sema.Scope { return sema.HostScope }

// Acquire waits for n permits and returns them as one. It fails with the
// context's cause, with [sema.ErrTooLarge] if n exceeds the capacity, with
// [sema.ErrClosed] if the set is removed, and with [sema.ErrInvalid].
func (g *Gate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "acquire"
	if unusual, err := g.unusual(ctx, op, n); unusual {
		return sema.Permit{}, err
	}
	if g.waiting.Load() == 0 {
		err := g.tryTake(n)
		if err == nil {
			return g.permit(n), nil
		}
		if err != errWouldWait {
			return sema.Permit{}, g.fault(op, n, err)
		}
	}
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	turn, err := g.turnstile.Acquire(ctx, 1)
	if err != nil {
		return sema.Permit{}, err
	}
	defer turn.Release()
	return g.waitInKernel(ctx, op, n)
}

// waitInKernel is for the one whose turn it is.
func (g *Gate) waitInKernel(ctx context.Context, op string, n int64) (sema.Permit, error) {
	err := semWait(ctx, g.set.id, g.change(-n))
	switch {
	case err == nil && ctx.Err() == nil:
		return g.permit(n), nil
	case err == nil:
		g.give(n) // a done context never acquires
		return sema.Permit{}, context.Cause(ctx)
	case ctx.Err() != nil:
		return sema.Permit{}, context.Cause(ctx)
	}
	return sema.Permit{}, g.fault(op, n, err)
}

// TryAcquire takes n permits if they are free and no goroutine of this process
// waits, and fails with [sema.ErrFull] otherwise, or like Acquire. It does not
// see those who wait in other processes.
func (g *Gate) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "try"
	if unusual, err := g.unusual(ctx, op, n); unusual {
		return sema.Permit{}, err
	}
	if g.waiting.Load() > 0 {
		return sema.Permit{}, g.fault(op, n, errWouldWait)
	}
	if err := g.tryTake(n); err != nil {
		return sema.Permit{}, g.fault(op, n, err)
	}
	return g.permit(n), nil
}

// unusual answers calls that need not ask for permits: a mistake, an ended
// context, more than can ever be granted, nothing at all.
func (g *Gate) unusual(ctx context.Context, op string, n int64) (bool, error) {
	mistake := func(err error, detail string) (bool, error) {
		return true, &sema.Error{Op: op, Name: g.Name(), Weight: n, Capacity: g.capacity, Err: err, Detail: detail}
	}
	switch {
	case ctx == nil:
		return mistake(sema.ErrInvalid, "nil context")
	case n < 0:
		return mistake(sema.ErrInvalid, "negative weight")
	case ctx.Err() != nil:
		return true, context.Cause(ctx)
	case n > g.capacity:
		return mistake(&reason{"larger than capacity", "split the request", []error{sema.ErrTooLarge}}, "")
	case n == 0:
		return true, g.removed(op, n, sema.ErrClosed)
	}
	return false, nil
}

// removed is nil while the set exists.
func (g *Gate) removed(op string, n int64, sentinel error) error {
	if _, err := g.set.Value(g.num); !errors.Is(err, sema.ErrClosed) {
		return nil
	}
	return &sema.Error{Op: op, Name: g.Name(), Weight: n, Capacity: g.capacity, Err: sentinel, Detail: "the set was removed"}
}

// fault is the error for a refusal by the kernel, with the numbers of now.
func (g *Gate) fault(op string, n int64, err error) error {
	e := &sema.Error{Op: op, Name: g.Name(), Weight: n, Capacity: g.capacity, Err: sema.ErrFull}
	if err != errWouldWait {
		e.Err = g.set.reasonFor(err)
		return e
	}
	if value, err := g.set.Value(g.num); err == nil {
		e.InUse = max(0, g.capacity-int64(value)) // who posts without taking may exceed the capacity
	}
	if inKernel, _, err := g.set.Waiting(g.num); err == nil {
		e.Waiters = inKernel + g.turnstile.Stats().Waiters
	}
	return e
}

func (g *Gate) tryTake(n int64) error { return semTry(g.set.id, g.change(-n)) }

// give gives n permits back. Raising a value never waits. It fails only where
// there is nothing to give back to or the kernel will do it when the process
// ends: the set was removed, somebody raised the value beyond what a semaphore
// can have, or took from us the right to change it.
func (g *Gate) give(n int64) { _ = semTry(g.set.id, g.change(+n)) }

// change is an operation in both directions: what is to be undone for this
// process is what it holds, and nothing when it holds nothing.
func (g *Gate) change(delta int64) []sembuf {
	return []sembuf{{num: uint16(g.num), delta: int16(delta), flags: undoFlag}}
}

func (g *Gate) permit(n int64) sema.Permit { return sema.NewPermit(n, &lease{g, n}) }

// A lease is n permits taken from the kernel. To split it, nothing there has to
// change.
type lease struct {
	gate *Gate
	n    int64
}

// Name is the gate's.
func (l *lease) Name() string { return l.gate.Name() }

// Release is for [sema.Permit.Release].
func (l *lease) Release() { l.gate.give(l.n) }

// Split is for [sema.Permit.Split].
func (l *lease) Split(n int64) (first, rest sema.Lease, err error) {
	return &lease{l.gate, n}, &lease{l.gate, l.n - n}, nil
}

// Err is for [sema.Permit.Err]: with the set gone, others make a new one and
// share what it guards without regard to this permit.
func (l *lease) Err() error { return l.gate.removed("hold", l.n, sema.ErrLost) }
