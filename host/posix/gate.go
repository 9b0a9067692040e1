package posix

import (
	"context"
	"fmt"

	"github.com/sema-go/sema"
)

// AsGate makes a [sema.Gate] of a semaphore: Acquire is Wait, and releasing the
// permit is Post, also after Close. Permits have weight 1. More is
// [sema.ErrTooLarge], however high the value: POSIX cannot take several at once,
// and who takes them one by one can block others who do the same for ever.
func AsGate(s *Semaphore) sema.Gate {
	if s == nil {
		panic("posix: AsGate(nil): want a semaphore")
	}
	return gate{s}
}

// A gate is also the Lease of its permits. It is comparable, so that
// sema.AcquireAll sees when it is given the same semaphore twice.
type gate struct{ s *Semaphore }

func (g gate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "acquire"
	if n != 1 || ctx == nil {
		return sema.Permit{}, g.unusual(ctx, op, n)
	}
	if ctx.Err() != nil || !g.s.TryWait() {
		if err := g.s.wait(ctx, op); err != nil {
			return sema.Permit{}, err
		}
	}
	return sema.NewPermit(1, g), nil
}

func (g gate) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "try"
	if n != 1 || ctx == nil {
		return sema.Permit{}, g.unusual(ctx, op, n)
	}
	if err := g.s.refusal(ctx, op); err != nil {
		return sema.Permit{}, err
	}
	if !g.s.TryWait() {
		return sema.Permit{}, &sema.Error{Op: op, Name: g.s.name, Err: sema.ErrFull, Waiters: int(g.s.Waiters()),
			Detail: "the value is 0, and POSIX does not count what is in use"}
	}
	return sema.NewPermit(1, g), nil
}

// Release posts whether the semaphore is closed or not: a permit must not be
// lost because it was closed first. It cannot exceed the maximum, unless
// somebody posted what they had not taken.
func (g gate) Release() { g.s.memory.post() }

// Name is the semaphore's.
func (g gate) Name() string { return g.s.name }

// Scope is [sema.HostScope].
func (g gate) Scope() sema.Scope { return sema.HostScope }

// unusual answers calls that do not ask for one permit.
func (g gate) unusual(ctx context.Context, op string, n int64) error {
	s := g.s
	switch {
	case ctx == nil:
		return s.fault(op, sema.ErrInvalid, "nil context")
	case n < 0:
		return s.fault(op, sema.ErrInvalid, fmt.Sprintf("negative weight, %d", n))
	case n > 1 && ctx.Err() == nil:
		return &sema.Error{Op: op, Name: s.name, Weight: n, Capacity: 1, Err: onlyOne{}}
	}
	return s.refusal(ctx, op)
}

// onlyOne is ErrTooLarge without its advice to split the request.
type onlyOne struct{}

func (onlyOne) Error() string {
	return "a POSIX semaphore gives one permit at a time, and taking several one by one can deadlock; acquire 1, or use package host for weights"
}

func (onlyOne) Unwrap() error { return sema.ErrTooLarge }
