// Package spent has permits of package rate, which need not be released.
package spent

import (
	"context"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
)

func call(ctx context.Context, api *rate.Gate, limiter rate.Limiter, local *sema.Semaphore) error {
	if _, err := api.Acquire(ctx, 1); err != nil {
		return err
	}
	if _, err := limiter.TryAcquire(ctx, 1); err != nil {
		return err
	}
	_, err := local.Acquire(ctx, 1) // want `the permit of local.Acquire is dropped`
	return err
}
