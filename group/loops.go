package group

import (
	"context"
	"iter"

	"github.com/sema-go/sema"
)

// Each calls fn for each value, in goroutines, as many at a time as gate admits. It returns
// the first error, after which no further value is taken from seq.
func Each[T any](ctx context.Context, gate sema.Gate, seq iter.Seq[T], fn func(ctx context.Context, v T) error) error {
	g := New(ctx, gate)
	defer g.abandon()
	for v := range seq {
		g.Go(func(ctx context.Context) error { return fn(ctx, v) })
		if g.failed.Load() {
			break
		}
	}
	return g.Wait()
}

// Map calls fn for each value, like [Each], and returns the results in the order of in. If
// a function fails, it returns that error and no results.
func Map[T, R any](ctx context.Context, gate sema.Gate, in []T, fn func(ctx context.Context, v T) (R, error)) ([]R, error) {
	g := New(ctx, gate)
	defer g.abandon()
	results := make([]R, len(in))
	for i, v := range in {
		g.Go(func(ctx context.Context) (err error) {
			results[i], err = fn(ctx, v)
			return err
		})
		if g.failed.Load() {
			break
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return results, nil
}

// abandon ends the group and waits for its functions, if a loop over it panics.
func (g *Group) abandon() {
	g.failed.Store(true)
	g.cancel(nil)
	g.settle()
}
