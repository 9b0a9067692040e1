// Package paths has permits that are not released on some path.
package paths

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
)

func never(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1) // want `p is not released on a path to the return in line 19; defer p.Release\(\) after checking err`
	if err != nil {
		return err
	}
	return work(ctx, p.Weight(), p.Held())
}

func early(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1) // want `p is not released on a path to the return in line 28`
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil {
		return err
	}
	p.Release()
	return nil
}

func fallsOffTheEnd(ctx context.Context, s sema.Gate, fast bool) {
	p, err := s.Acquire(ctx, 1) // want `p is not released on a path to the return in line 44`
	if err != nil {
		return
	}
	if fast {
		p.Release()
		return
	}
	work(ctx)
}

func whenSucceeded(ctx context.Context, s sema.Gate) {
	p, err := s.Acquire(ctx, 1) // want `p is not released on a path`
	if err != nil {
		return
	}
	if work(ctx) == nil {
		p.Release()
	}
}

func anotherError(ctx context.Context, s sema.Gate) error {
	p, err := s.Acquire(ctx, 1) // want `p is not released on a path to the return in line 60`
	err = work(ctx)
	if err != nil {
		return err
	}
	p.Release()
	return nil
}

func errorNotChecked(ctx context.Context, s sema.Gate) error {
	p, err := s.Acquire(ctx, 1) // want `p is not released on a path`
	fmt.Println(p.Held(), err)
	return err
}

func blankError(ctx context.Context, s sema.Gate) {
	p, _ := s.Acquire(ctx, 1) // want `p is not released on a path to the return in line \d+; defer p.Release\(\)`
	_ = p
	work(ctx)
}

func oneOfTheErrors(ctx context.Context, s sema.Gate) error {
	p, err := s.TryAcquire(ctx, 1) // want `p is not released on a path`
	if errors.Is(err, sema.ErrFull) {
		return err
	}
	return work(ctx, p.Held())
}

func inASwitch(ctx context.Context, s sema.Gate) error {
	p, err := s.TryAcquire(ctx, 1) // want `p is not released on a path to the return in line 92`
	switch {
	case errors.Is(err, sema.ErrFull):
		return nil
	case err == nil:
		return work(ctx)
	default:
		p.Release()
		return err
	}
}

func inASelect(ctx context.Context, s sema.Gate, done chan int) error {
	p, err := s.Acquire(ctx, 1) // want `p is not released on a path to the return in line 108`
	if err != nil {
		return err
	}
	select {
	case <-done:
		p.Release()
	case <-ctx.Done():
		return ctx.Err()
	case <-p.Lost():
		p.Release()
	}
	return nil
}

func byBool(ctx context.Context) {
	p, ok := tryToday() // want `p is not released on a path`
	if !ok {
		return
	}
	work(ctx, p.Weight())
}

func tryToday() (sema.Permit, bool) { return sema.Permit{}, false }

func everyIteration(ctx context.Context, s sema.Gate) error {
	for {
		p, err := s.Acquire(ctx, 1) // want `p is not released on a path to its next assignment in line 127; call p.Release\(\) before it`
		if err != nil {
			return err
		}
		work(ctx, p.Held())
	}
}

func reassigned(ctx context.Context, a, b sema.Gate) error {
	p, err := a.Acquire(ctx, 1) // want `p is not released on a path to its next assignment in line 140`
	if err != nil {
		return err
	}
	p, err = b.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer p.Release()
	return work(ctx)
}

func cancelIsNotRelease(ctx context.Context, s sema.Gate) error {
	p, err := s.Acquire(ctx, 1) // want `p is not released on a path`
	if err != nil {
		return err
	}
	ctx, cancel := p.Context(ctx)
	defer cancel()
	return work(ctx)
}

func onlyItsLease(ctx context.Context, s *fleet.Semaphore) error {
	p, err := s.Acquire(ctx, 1) // want `p is not released on a path`
	if err != nil {
		return err
	}
	lease, _ := fleet.LeaseOf(p)
	return work(ctx, lease.Fence)
}

func parts(ctx context.Context, whole sema.Permit) error {
	first, rest, err := whole.Split(1) // want `rest is not released on a path`
	if err != nil {
		return err
	}
	defer first.Release()
	return work(ctx, rest.Weight())
}

func inALiteral(ctx context.Context, s sema.Gate) func() error {
	return func() error {
		p, err := s.Acquire(ctx, 1) // want `p is not released on a path`
		if err != nil {
			return err
		}
		return work(ctx, p.Held())
	}
}

func byVar(ctx context.Context, s sema.Gate) error {
	var p, err = s.Acquire(ctx, 1) // want `p is not released on a path`
	if nil != err {
		os.Exit(1)
	}
	return work(ctx, p.Held())
}

func conditionChanged(ctx context.Context, s sema.Gate, limited bool) (err error) {
	var p sema.Permit
	if limited {
		if p, err = s.Acquire(ctx, 1); err != nil { // want `p is not released on a path`
			return err
		}
	}
	limited = work(ctx) != nil
	if limited {
		p.Release()
	}
	return nil
}

func anotherVariableOfThatName(ctx context.Context, s sema.Gate, ok bool) (err error) {
	var p sema.Permit
	if ok {
		if p, err = s.Acquire(ctx, 1); err != nil { // want `p is not released on a path`
			return err
		}
	}
	if ok := work(ctx) == nil; ok {
		p.Release()
	}
	return nil
}

func work(ctx context.Context, about ...any) error { return ctx.Err() }
