// Package lib has functions that return a bare permit.
package lib

import (
	"context"

	"github.com/sema-go/sema"
)

// Must hands over what it acquired.
func Must(ctx context.Context, s sema.Gate) sema.Permit { // want Must:"hands over a permit"
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		panic(err)
	}
	return p
}

// Maybe hands over what Must did, or nothing.
func Maybe(ctx context.Context, s sema.Gate) sema.Permit { // want Maybe:"hands over a permit"
	if ctx.Err() != nil {
		return sema.Permit{}
	}
	return Must(ctx, s)
}

// Holder keeps a permit.
type Holder struct{ permit sema.Permit }

// Permit shows it.
func (h *Holder) Permit() sema.Permit { return h.permit }

// Fill keeps what it also shows.
func (h *Holder) Fill(ctx context.Context, s sema.Gate) sema.Permit {
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		panic(err)
	}
	h.permit = p
	return p
}

// Nothing is inert.
func Nothing() sema.Permit { return sema.Permit{} }
