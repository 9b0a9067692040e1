// Package items has items of a pool that are dropped.
package items

import (
	"context"

	"github.com/sema-go/sema/pool"
)

type conn struct{}

func (*conn) query(context.Context) error { return nil }

func statement(ctx context.Context, p *pool.Pool[*conn]) {
	p.Get(ctx) // want `the item of p.Get is dropped: it never returns to the pool; store it and defer its Release`
}

func everyGet(ctx context.Context, p *pool.Pool[*conn]) error {
	p.TryGet(ctx)                // want `the item of p.TryGet is dropped`
	_, _ = p.GetVia(ctx, nil, 1) // want `the item of p.GetVia is dropped`
	_, err := p.Get(ctx)         // want `the item of p.Get is dropped`
	item, err := p.Get(ctx)      // want `item is not released on a path to the return in line 24`
	println(item.Value(), item.Permit().Weight(), item.Held())
	return err
}

func mustGet[T any](ctx context.Context, p *pool.Pool[T]) pool.Item[T] { // want mustGet:"hands over what it acquired"
	item, err := p.Get(ctx)
	if err != nil {
		panic(err)
	}
	return item
}

func dropsMust(ctx context.Context, p *pool.Pool[*conn]) error {
	return mustGet(ctx, p).Value().query(ctx) // want `the item of mustGet is dropped`
}

func keepsOrDrops(ctx context.Context, p *pool.Pool[*conn], keep bool) (*conn, error) {
	item, err := p.Get(ctx) // want `item is not released on a path to the return in line 49; defer item.Release\(\) after checking err`
	if err != nil {
		return nil, err
	}
	if keep {
		c, permit := item.Keep()
		defer permit.Release()
		return c, nil
	}
	return nil, nil
}

func onAPath(ctx context.Context, p *pool.Pool[*conn]) error {
	item, err := p.Get(ctx) // want `item is not released on a path to the return in line 58; defer item.Release\(\) after checking err`
	if err != nil {
		return err
	}
	if err := item.Value().query(ctx); err != nil {
		return err
	}
	item.Release()
	return nil
}

func inALoop(ctx context.Context, p *pool.Pool[*conn]) error {
	for range 3 {
		item, err := p.TryGet(ctx)
		if err != nil {
			return err
		}
		defer item.Release() // want `this defer keeps the item of every iteration until the function returns; release item in the loop, or move the loop body into a function`
	}
	return nil
}

func kept(ctx context.Context, item pool.Item[*conn]) *conn {
	c, _ := item.Keep() // want `the permit of item.Keep is dropped`
	return c
}

func released(ctx context.Context, p *pool.Pool[*conn]) error {
	item, err := p.GetVia(ctx, nil, 1)
	if err != nil {
		return err
	}
	defer item.Release()
	return item.Value().query(ctx)
}

func discarded(ctx context.Context, p *pool.Pool[*conn]) error {
	item, err := p.Get(ctx)
	if err != nil {
		return err
	}
	if err := item.Value().query(ctx); err != nil {
		item.Discard()
		return err
	}
	item.Release()
	item, err = p.TryGet(ctx)
	if !item.Held() {
		return err
	}
	c, permit := item.Keep()
	defer permit.Release()
	return c.query(ctx)
}

func passedOn(ctx context.Context, p *pool.Pool[*conn]) (pool.Item[*conn], error) {
	item, err := p.Get(ctx)
	if err != nil {
		return pool.Item[*conn]{}, err
	}
	return item, nil
}
