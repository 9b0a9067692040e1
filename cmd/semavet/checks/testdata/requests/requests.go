// Package requests waits without the context of a request.
package requests

import (
	"context"
	"net/http"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
)

func parameter(ctx context.Context, s *sema.Semaphore, w *sema.Weighted, p *pool.Pool[int], spin *sema.Spin) error {
	permit, err := s.Acquire(context.Background(), 1) // want `s.Acquire waits with context.Background\(\), which never ends; pass ctx`
	if err != nil {
		return err
	}
	defer permit.Release()
	item, err := p.Get(context.TODO()) // want `p.Get waits with context.TODO\(\), which never ends; pass ctx`
	if err != nil {
		return err
	}
	defer item.Release()
	_ = spin.Acquire(context.Background()) // want `spin.Acquire waits with`
	_ = w.Acquire(context.Background(), 1) // want `w.Acquire waits with`
	return nil
}

func byVariable(_ http.ResponseWriter, r *http.Request, w *sema.Weighted) error {
	ctx := context.Background()
	return w.Acquire(ctx, 1) // want `w.Acquire waits with ctx, which never ends; pass r.Context\(\)`
}

func inALiteral(ctx context.Context, c *sema.Counter) {
	go func() {
		if c.Wait(context.Background(), 1) != nil { // want `c.Wait waits with context.Background\(\), which never ends; pass ctx`
			return
		}
	}()
}

func quiet(ctx context.Context, s *sema.Semaphore, c *sema.Counter) error {
	permit, err := s.TryAcquire(context.Background(), 1) // does not wait
	if err != nil {
		return err
	}
	defer permit.Release()
	later := context.Background()
	if ctx.Err() != nil {
		later = ctx
	}
	if err := c.Wait(later, 1); err != nil {
		return err
	}
	return c.Wait(ctx, 1)
}

func noRequest(c *sema.Counter) error { return c.Wait(context.Background(), 1) }
