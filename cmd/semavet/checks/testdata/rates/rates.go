// Package rates has permits of a rate, which need not be released.
package rates

import (
	"context"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
)

var options = []fleet.Option{fleet.Rate(time.Minute)}

func call(ctx context.Context, api *fleet.Semaphore, gate sema.Gate, local *sema.Semaphore) error {
	if _, err := api.Acquire(ctx, 1); err != nil {
		return err
	}
	if _, err := gate.Acquire(ctx, 1); err != nil {
		return err
	}
	_, err := local.Acquire(ctx, 1) // want `the permit of local.Acquire is dropped`
	return err
}
