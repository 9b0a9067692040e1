// Package ignored gives reasons.
package ignored

import (
	"context"

	"github.com/sema-go/sema"
)

func dropsOnPurpose(ctx context.Context, s *sema.Semaphore) {
	s.Acquire(ctx, 1) //semavet:ignore it is to be full for ever

	//semavet:ignore it is to be full for ever
	s.Acquire(ctx, 1)

	//semavet:ignore it is to be full for ever

	s.Acquire(ctx, 1) // want `the permit of s.Acquire is dropped`

	/* want `semavet:ignore demands a reason: //semavet:ignore <why it may be dropped>` */ //semavet:ignore
	s.Acquire(ctx, 1)                                                                      // want `the permit of s.Acquire is dropped`
	//semavet:ignored is another word
	s.Acquire(ctx, 1) // want `the permit of s.Acquire is dropped`
}
