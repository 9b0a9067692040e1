// Package passed acquires in one function and releases in another.
package passed

import (
	"context"
	"errors"

	"github.com/sema-go/sema"
)

type pool struct {
	sem    *sema.Weighted
	closed bool
}

func newPool() *pool { return &pool{sem: sema.NewWeighted(10)} }

type conn struct{ of *pool }

func (p *pool) get(ctx context.Context) (*conn, error) {
	if err := p.sem.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	if p.closed {
		p.sem.Release(1)
		return nil, errClosed
	}
	return &conn{p}, nil
}

func (c *conn) close() { c.of.sem.Release(1) }

// closeAll releases inside close.
func (p *pool) closeAll(ctx context.Context, c *conn) error {
	if err := p.sem.Acquire(ctx, 1); err != nil {
		return err
	}
	if p.closed {
		c.close()
		return errClosed
	}
	p.sem.Release(1)
	return nil
}

func (p *pool) ping(ctx context.Context) error {
	if err := p.sem.Acquire(ctx, 1); err != nil { // want `what p.sem.Acquire\(ctx, 1\) acquires is not released on a path to the return in line 51`
		return err
	}
	if ctx.Err() != nil {
		return errors.New("too late")
	}
	p.sem.Release(1)
	return nil
}

// wait waits for all.
func (p *pool) wait(ctx context.Context) error { return p.sem.Acquire(ctx, 10) }

// shrink keeps a part for close.
func (p *pool) shrink(ctx context.Context) error {
	if err := p.sem.Acquire(ctx, 3); err != nil {
		return err
	}
	p.sem.Release(1)
	return nil
}

// swap releases what get acquired.
func (p *pool) swap(ctx context.Context) error {
	if err := p.sem.Acquire(ctx, 1); err != nil {
		p.sem.Release(1)
		return err
	}
	p.sem.Release(2)
	return nil
}

var errClosed = errors.New("closed")
