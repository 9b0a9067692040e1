// Package admissions uses admission control.
package admissions

import (
	"context"

	"github.com/sema-go/sema/admit"
)

func dropped(ctx context.Context, c *admit.Controller) {
	c.Admit(ctx, admit.Request{}) // want `the admission of c.Admit is dropped: its permits can never be released; store it and defer its Done`
}

func earlyReturn(ctx context.Context, c *admit.Controller, work func() error) error {
	a, err := c.TryAdmit(ctx, admit.Request{}) // want `a.Done is not called on a path to the return in line 20; defer a.Done\(admit.Failed\) after checking err`
	if err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	a.Done(admit.OK)
	return nil
}

func deferred(ctx context.Context, c *admit.Controller, work func(context.Context) error) error {
	a, err := c.Admit(ctx, admit.Request{})
	if err != nil {
		return err
	}
	defer a.Done(admit.Failed)
	held, cancel := a.Context(ctx)
	defer cancel()
	a.Settle(3)
	err = work(held)
	a.Done(admit.ResultOf(err))
	return err
}

func leaked(ctx context.Context, c *admit.Controller) error {
	a, err := c.Admit(ctx, admit.Request{})
	if err != nil {
		return err
	}
	defer a.Done(admit.OK)
	_, _ = a.Context(ctx) // want `the cancel function of a.Context is dropped`
	return nil
}
