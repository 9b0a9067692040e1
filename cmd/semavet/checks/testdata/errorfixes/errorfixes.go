// Package errorfixes has ignored errors that can be returned.
package errorfixes

import (
	"context"

	"github.com/sema-go/sema"
)

func returnsError(ctx context.Context, c *sema.Counter, s sema.Gate) error {
	c.Wait(ctx, 1) // want `the error of c.Wait is ignored`
	if s != nil {
		sema.Do(ctx, s, 1, nil) // want `the error of sema.Do is ignored`
	}
	return nil
}

func returnsNothing(ctx context.Context, c *sema.Counter) {
	c.Wait(ctx, 1) // want `the error of c.Wait is ignored`
}

func returnsMore(ctx context.Context, c *sema.Counter) (int64, error) {
	c.Wait(ctx, 1) // want `the error of c.Wait is ignored`
	return 0, nil
}

func runsLater(ctx context.Context, c *sema.Counter) error {
	defer c.Wait(ctx, 1)  // want `the error of c.Wait is ignored`
	c.WaitUpTo(ctx, 1, 3) // want `the error of c.WaitUpTo is ignored`
	return nil
}
