// Package ignored suppresses reports.
package ignored

import (
	"context"

	"github.com/sema-go/sema"
)

func dropsOnPurpose(ctx context.Context, s *sema.Semaphore) {
	s.Acquire(ctx, 1) //semavet:ignore it must stay full

	//semavet:ignore it must stay full
	s.Acquire(ctx, 1)

	//semavet:ignore it must stay full

	s.Acquire(ctx, 1) // want `the permit of s.Acquire is dropped`

	/* want `semavet:ignore requires a reason: //semavet:ignore <why it may be dropped>` */ //semavet:ignore
	s.Acquire(ctx, 1)                                                                       // want `the permit of s.Acquire is dropped`
	//semavet:ignored is not the directive
	s.Acquire(ctx, 1) // want `the permit of s.Acquire is dropped`
}
