// Package fixes has findings that a defer fixes.
package fixes

import (
	"context"

	"github.com/sema-go/sema"
)

func named(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1) // want `p is not released`
	if err != nil {
		return err
	}
	return work(ctx, p.Weight())
}

func releasedHere(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1) // want `p is not released`
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil {
		return err
	}
	p.Release()
	return nil
}

func blank(ctx context.Context, s *sema.Semaphore) error {
	_, err := s.Acquire(ctx, 1) // want `the permit of s.Acquire is dropped`
	if err != nil {
		return err
	}
	return work(ctx)
}

func byBool(ctx context.Context) error {
	p, ok := try() // want `p is not released`
	if !ok {
		return nil
	}
	return work(ctx, p.Weight())
}

func try() (sema.Permit, bool) { return sema.Permit{}, false }

func ticket(ctx context.Context, s *sema.Semaphore) error {
	t := s.Request(1) // want `neither t.Cancel nor t.Permit is called`
	select {
	case <-t.Ready():
	case <-ctx.Done():
	}
	return nil
}

func dropsCancel(ctx context.Context, p sema.Permit) error {
	held, _ := p.Context(ctx) // want `the cancel function of p.Context is dropped`
	return work(held)
}

// The following findings have no automatic fix.

func transferredElsewhere(ctx context.Context, s *sema.Semaphore) (sema.Permit, error) {
	p, err := s.Acquire(ctx, 1) // want `p is not released`
	if err != nil {
		return p, err
	}
	if err := work(ctx); err != nil {
		return sema.Permit{}, err
	}
	return p, nil
}

func nameTaken(ctx context.Context, s *sema.Semaphore, permit int) error {
	_, err := s.Acquire(ctx, 1) // want `the permit of s.Acquire is dropped`
	if err != nil {
		return err
	}
	return work(ctx, permit)
}

func inALoop(ctx context.Context, s *sema.Semaphore) error {
	for {
		p, err := s.Acquire(ctx, 1) // want `p is not released`
		if err != nil {
			return err
		}
		work(ctx, p.Weight())
	}
}

func leavesALoop(ctx context.Context, s *sema.Semaphore) error {
	for {
		p, err := s.Acquire(ctx, 1) // want `p is not released`
		if err != nil {
			return err
		}
		if work(ctx) == nil {
			return nil
		}
		p.Release()
	}
}

func nothingDeclared(ctx context.Context, s *sema.Semaphore) (err error) {
	_, err = s.Acquire(ctx, 1) // want `the permit of s.Acquire is dropped`
	if err != nil {
		return err
	}
	return work(ctx)
}

func notChecked(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1) // want `p is not released`
	work(ctx, err, p.Weight())
	return err
}

func inAnIf(ctx context.Context, s *sema.Semaphore) error {
	if _, err := s.Acquire(ctx, 1); err != nil { // want `the permit of s.Acquire is dropped`
		return err
	}
	return work(ctx)
}

func ticketInAnIf(s *sema.Semaphore) {
	if t := s.Request(1); s.Stats().Free > 0 { // want `neither t.Cancel nor t.Permit is called`
		<-t.Ready()
	}
}

func statement(ctx context.Context, s *sema.Semaphore) {
	s.Acquire(ctx, 1) // want `the permit of s.Acquire is dropped`
}

func noError(ctx context.Context, s *sema.Semaphore) {
	p, _ := s.Acquire(ctx, 1) // want `p is not released`
	work(ctx, p.Weight())
}

func work(ctx context.Context, about ...any) error { return ctx.Err() }
