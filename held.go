package sema

import (
	"context"
	"slices"
)

// Context makes a context for the work done under the permit. It ends, with
// cause [ErrLost], when the permit's lease is lost, and it carries the holder's
// identity: what is acquired with it, or with a context made from it, is known
// to be acquired while holding this permit. Call cancel when done.
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

// Held lists the permits that ctx says its user holds, by [Permit.Context] or
// [Do], and that are still held, the first acquired first.
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

// A holding is a permit in a context, and those in the contexts around it.
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
