package sema

import "context"

// Do runs fn while it holds n permits of gate. It releases the permits when fn
// returns, panics or ends its goroutine. The context of fn is that of
// [Permit.Context]: it ends when the permit is lost.
//
// Do returns the error of the acquire, or that of fn. If fn returns nil but the
// permit was lost meanwhile, Do returns that error. A nil gate or context is
// ErrInvalid.
func Do(ctx context.Context, gate Gate, n int64, fn func(context.Context) error) error {
	switch {
	case gate == nil:
		return &Error{Op: "do", Err: ErrInvalid, Detail: "nil gate", Advice: "check the error of the function that returned the gate"}
	case ctx == nil:
		return &Error{Op: "do", Err: ErrInvalid, Detail: nilContext}
	}
	p, err := gate.Acquire(ctx, n)
	if err != nil {
		return err
	}
	defer p.Release()
	if p.Lost() == nil {
		return fn(holdingContext(ctx, p)) // the permit cannot be lost
	}
	if err := p.Err(); err != nil {
		return err // lost before fn started
	}
	held, cancel := p.Context(ctx)
	defer cancel()
	if err := fn(held); err != nil {
		return err
	}
	return p.Err()
}
