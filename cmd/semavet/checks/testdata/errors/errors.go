// Package errors ignores the errors of acquires.
package errors

import (
	"context"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

func blank(ctx context.Context, s *sema.Semaphore) {
	p, _ := s.Acquire(ctx, 1) // want `the error of s.Acquire is ignored: if it is not nil, nothing was acquired; return before the work`
	defer p.Release()
	work(ctx)
}

func everyGate(ctx context.Context, g sema.Gate, h *host.Semaphore, st *sema.Striped, q *wfq.Queue, own limiter) {
	a, _ := g.TryAcquire(ctx, 1) // want `the error of g.TryAcquire is ignored`
	defer a.Release()
	b, _ := h.Acquire(ctx, 1) // want `the error of h.Acquire is ignored`
	defer b.Release()
	c, _ := st.Acquire(ctx, 1) // want `the error of st.Acquire is ignored`
	defer c.Release()
	d, _ := q.Class("paid").Acquire(ctx, 1) // want `the error of q.Class\("paid"\).Acquire is ignored`
	defer d.Release()
	e, _ := own.enter(ctx) // want `the error of own.enter is ignored`
	defer e.Release()
	f, _ := sema.AcquireAll(ctx, sema.Want{Gate: g, N: 1}) // want `the error of sema.AcquireAll is ignored`
	defer f.Release()
}

type limiter struct{ sema.Gate }

func (l limiter) enter(ctx context.Context) (sema.Permit, error) { return l.Acquire(ctx, 1) }

func rates(ctx context.Context, r *rate.Gate) {
	r.Acquire(ctx, 1)        // want `the error of r.Acquire is ignored`
	_, _ = r.Acquire(ctx, 1) // want `the error of r.Acquire is ignored`
}

func items(ctx context.Context, p *pool.Pool[int]) {
	item, _ := p.Get(ctx) // want `the error of p.Get is ignored`
	defer item.Release()
	println(item.Value())
	p.Do(ctx, func(context.Context, pool.Item[int]) error { return nil }) // want `the error of p.Do is ignored: if there is no permit, the function is not called; handle the error`
}

func itemTooEarly(ctx context.Context, p *pool.Pool[int]) error {
	item, err := p.Get(ctx)
	defer item.Release()
	println(item.Value()) // want `item.Value is used before err is checked: if the acquire failed, there is nothing to use`
	if err != nil {
		return err
	}
	return nil
}

func permitTooEarly(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1)
	defer p.Release()
	ctx, cancel := p.Context(ctx) // want `p.Context is used before err is checked`
	defer cancel()
	if err != nil {
		return err
	}
	return work(ctx)
}

func weighted(ctx context.Context, w *sema.Weighted, spin *sema.Spin) {
	w.Acquire(ctx, 1) // want `the error of w.Acquire is ignored: if it is not nil, nothing was acquired; return before the work`
	defer w.Release(1)
	_ = w.Acquire(ctx, 1) // want `the error of w.Acquire is ignored`
	w.Release(1)
	spin.Acquire(ctx) // want `the error of spin.Acquire is ignored`
	spin.Release()
	later, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.Acquire(later, 1) // want `the error of w.Acquire is ignored`
	w.Release(1)
}

func counters(ctx context.Context, c *sema.Counter) {
	c.Wait(ctx, 1)                  // want `the error of c.Wait is ignored: if it is not nil, the wait ended without a signal; return before the work`
	_ = c.Wait(ctx, 1)              // want `the error of c.Wait is ignored`
	go c.Wait(ctx, 1)               // want `the error of c.Wait is ignored`
	defer c.Wait(ctx, 1)            // want `the error of c.Wait is ignored`
	c.WaitUpTo(ctx, 1, 3)           // want `the error of c.WaitUpTo is ignored`
	_, _ = c.WaitUpTo(ctx, 1, 3)    // want `the error of c.WaitUpTo is ignored`
	c.Wait(context.Background(), 1) // want `the error of c.Wait is ignored`
}

type watcher struct{ changed *sema.Counter }

func (w *watcher) field(ctx context.Context) {
	w.changed.Wait(ctx, 1) // want `the error of w.changed.Wait is ignored: if it is not nil, the wait ended`
}

func overwritten(ctx context.Context, s *sema.Semaphore, c *sema.Counter) error {
	p, err := s.Acquire(ctx, 1) // want `err of s.Acquire is never checked: if it is not nil, nothing was acquired; return before the work`
	defer p.Release()
	err = work(ctx)
	if err != nil {
		return err
	}
	err = c.Wait(ctx, 1) // want `err of c.Wait is never checked: if it is not nil, the wait ended`
	return nil
}

func functions(ctx context.Context, s *sema.Semaphore, g *group.Group) {
	sema.Do(ctx, s, 1, work)    // want `the error of sema.Do is ignored: if there is no permit, the function is not called`
	go sema.Do(ctx, s, 1, work) // want `the error of sema.Do is ignored`
	g.GoWithin(ctx, 1, work)    // want `the error of g.GoWithin is ignored`
	s.Acquire(ctx, 1)           // Dropped reports it
	_, err := s.Acquire(ctx, 1) // and this
	_, _ = s.Acquire(ctx, 1)    // and this
	//semavet:ignore it is a hint
	sema.Do(ctx, s, 1, work)
	println(err)
}

func work(context.Context) error { return nil }
