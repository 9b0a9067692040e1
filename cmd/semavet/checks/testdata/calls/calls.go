// Package calls releases after calls that may panic.
package calls

import (
	"context"

	"github.com/sema-go/sema"
)

func call(ctx context.Context, s *sema.Semaphore, w *sema.Weighted, fn func()) error {
	permit, err := s.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	fn()
	permit.Release() // want `permit.Release is not deferred: a panic in fn in line 15 would skip it; defer it after the acquire`
	if err := w.Acquire(ctx, 1); err != nil {
		return err
	}
	fn()
	w.Release(1) // want `w.Release is not deferred: a panic in fn in line 20 would skip it; defer it`
	return nil
}

func atOnce(ctx context.Context, s *sema.Semaphore, n []int) error {
	permit, err := s.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	n = append(n, 1)
	permit.Release()
	return nil
}
