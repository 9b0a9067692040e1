// Package contexts drops what ends the context of a permit.
package contexts

import (
	"context"

	"github.com/sema-go/sema"
)

func thrown(ctx context.Context, p sema.Permit) error {
	held, _ := p.Context(ctx) // want `the cancel function of p.Context is dropped: what watches the permit does not end; keep it, and defer it`
	return work(held)
}

func onSomePath(ctx context.Context, p sema.Permit) error {
	held, cancel := p.Context(ctx) // want `cancel is not called on a path to the return in line 18; defer cancel\(\)`
	if err := work(held); err != nil {
		return err
	}
	cancel()
	return nil
}

func cares(ctx context.Context, p sema.Permit) (context.Context, context.CancelFunc) {
	held, cancel := p.Context(ctx)
	defer cancel()
	work(held)
	other, cancelOther := p.Context(ctx)
	return other, cancelOther
}

func work(ctx context.Context) error { return ctx.Err() }
