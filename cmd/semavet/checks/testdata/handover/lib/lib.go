// Package lib has functions whose only result is a permit.
package lib

import (
	"context"

	"github.com/sema-go/sema"
)

// Must returns a permit that it acquired.
func Must(ctx context.Context, s sema.Gate) sema.Permit { // want Must:"hands over what it acquired"
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		panic(err)
	}
	return p
}

// Maybe returns the permit of Must, or an inert one.
func Maybe(ctx context.Context, s sema.Gate) sema.Permit { // want Maybe:"hands over what it acquired"
	if ctx.Err() != nil {
		return sema.Permit{}
	}
	return Must(ctx, s)
}

// A Holder stores a permit.
type Holder struct{ permit sema.Permit }

// Permit returns the stored permit.
func (h *Holder) Permit() sema.Permit { return h.permit }

// Fill stores the permit that it returns.
func (h *Holder) Fill(ctx context.Context, s sema.Gate) sema.Permit {
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		panic(err)
	}
	h.permit = p
	return p
}

// Nothing returns an inert permit.
func Nothing() sema.Permit { return sema.Permit{} }
