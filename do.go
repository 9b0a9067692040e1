package sema

import "context"

// Do runs fn while holding n permits of gate. The permits are released when
// fn returns, panics or ends its goroutine. fn's context is that of
// [Permit.Context]: it ends when the permit is lost. Do returns what kept it
// from acquiring, or fn's error, or else, if the permit was lost meanwhile,
// that. A nil gate or context is ErrInvalid.
func Do(ctx context.Context, gate Gate, n int64, fn func(context.Context) error) error {
	switch {
	case gate == nil:
		return &Error{Op: "do", Err: ErrInvalid, Detail: "nil gate"}
	case ctx == nil:
		return &Error{Op: "do", Err: ErrInvalid, Detail: nilContext}
	}
	p, err := gate.Acquire(ctx, n)
	if err != nil {
		return err
	}
	defer p.Release()
	if p.Lost() == nil {
		return fn(holdingContext(ctx, p)) // nothing can end it early
	}
	if err := p.Err(); err != nil {
		return err // lost before anything was done with it
	}
	held, cancel := p.Context(ctx)
	defer cancel()
	if err := fn(held); err != nil {
		return err
	}
	return p.Err()
}
