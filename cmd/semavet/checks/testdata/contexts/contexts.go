// Package contexts drops the cancel function of a permit's context.
package contexts

import (
	"context"

	"github.com/sema-go/sema"
)

func discarded(ctx context.Context, p sema.Permit) error {
	held, _ := p.Context(ctx) // want `the cancel function of p.Context is dropped: the goroutine that watches the permit never ends; store it and defer it`
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

func cancels(ctx context.Context, p sema.Permit) (context.Context, context.CancelFunc) {
	held, cancel := p.Context(ctx)
	defer cancel()
	work(held)
	other, cancelOther := p.Context(ctx)
	return other, cancelOther
}

func work(ctx context.Context) error { return ctx.Err() }
