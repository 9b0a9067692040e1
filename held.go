package sema

import (
	"context"
	"slices"
)

// Context returns a context for the work done under the permit. The context ends,
// with a cause that wraps [ErrLost], when the permit's lease is lost. It also
// identifies the holder: what is acquired with it, or with a context derived from it,
// is known to be acquired while this permit is held. Call cancel when done.
func (p Permit) Context(parent context.Context) (context.Context, context.CancelFunc) {
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithCancelCause(holdingContext(parent, p))
	if lost := p.Lost(); lost != nil {
		go func() {
			select {
			case <-lost:
				cancel(p.lossCause())
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(context.Canceled) }
}

func (p Permit) lossCause() error {
	if err := p.Err(); err != nil {
		return err
	}
	return ErrLost
}

// Held returns the permits that ctx carries, from [Permit.Context] or [Do], and that
// are still held, the first acquired first.
func Held(ctx context.Context) []Permit {
	var permits []Permit
	for h := holdingOf(ctx); h != nil; h = h.outer {
		if h.permit.Held() {
			permits = append(permits, h.permit)
		}
	}
	slices.Reverse(permits)
	return permits
}

// A holding is a permit in a context, linked to those of the parent contexts.
type holding struct {
	permit Permit
	outer  *holding
}

type holdingKey struct{}

func holdingOf(ctx context.Context) *holding {
	if ctx == nil {
		return nil
	}
	h, _ := ctx.Value(holdingKey{}).(*holding)
	return h
}

func holdingContext(parent context.Context, p Permit) context.Context {
	if p.handle == nil {
		return parent
	}
	return context.WithValue(parent, holdingKey{}, &holding{p, holdingOf(parent)})
}
