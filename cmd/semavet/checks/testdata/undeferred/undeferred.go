// Package undeferred has releases that are not deferred.
package undeferred

import (
	"context"

	"github.com/sema-go/sema"
)

func atOnce(ctx context.Context, s *sema.Semaphore, w *sema.Weighted) error {
	permit, err := s.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	permit.Release() // want `permit.Release is not deferred: a panic would skip it; defer it after the acquire`
	if w.TryAcquire(2) {
		w.Release(2) // want `w.Release is not deferred: a panic would skip it`
	}
	return nil
}

func deferred(ctx context.Context, s *sema.Semaphore, w *sema.Weighted) error {
	permit, err := s.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer permit.Release()
	if err := w.Acquire(ctx, 1); err != nil {
		return err
	}
	defer w.Release(1)
	return nil
}

// transferred releases a permit that another function acquired.
func transferred(p sema.Permit, w *sema.Weighted) {
	p.Release()
	w.Release(1)
}
