// Package quiet has nothing to report.
package quiet

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/rate"
)

func checked(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer p.Release()
	return nil
}

func checkedLater(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1)
	defer p.Release()
	if err == nil {
		fmt.Println(p.Weight())
	}
	return err
}

func held(ctx context.Context, s *sema.Semaphore) {
	p, _ := s.TryAcquire(ctx, 1)
	if p.Held() {
		defer p.Release()
	}
}

func byWeight(ctx context.Context, s *sema.Semaphore) {
	p, _ := s.TryAcquire(ctx, 1)
	if p.Weight() == 0 {
		return
	}
	p.Release()
}

func passedOn(ctx context.Context, s *sema.Semaphore) sema.Permit { // want passedOn:"hands over what it acquired"
	p, _ := s.TryAcquire(ctx, 1)
	return p
}

func returned(ctx context.Context, s *sema.Semaphore) (sema.Permit, error) {
	p, err := s.Acquire(ctx, 1)
	return p, err
}

func named(ctx context.Context, s *sema.Semaphore) (p sema.Permit, err error) {
	p, err = s.Acquire(ctx, 1)
	return
}

func inALiteral(ctx context.Context, c *sema.Counter) error {
	var err error
	func() { err = c.Wait(ctx, 1) }()
	return err
}

func byAddress(ctx context.Context, c *sema.Counter) (err error) {
	defer note(&err)
	err = c.Wait(ctx, 1)
	return nil
}

func note(*error) {}

func someTimes(ctx context.Context, c *sema.Counter, patient bool) error {
	err := c.Wait(ctx, 1)
	if patient {
		return err
	}
	return nil
}

func retried(ctx context.Context, c *sema.Counter) (err error) {
	for range 3 {
		if err = c.Wait(ctx, 1); errors.Is(err, sema.ErrQueueFull) {
			continue
		}
		return err
	}
	return err
}

func batches(ctx context.Context, c *sema.Counter) {
	n, _ := c.WaitUpTo(ctx, 1, 3)
	fmt.Println(n)
	c.TryWait(1)
	c.Post(1)
}

func onPurpose(ctx context.Context, s *sema.Semaphore) {
	_ = sema.Do(ctx, s, 1, func(context.Context) error { return nil })
}

func cannotFail(w *sema.Weighted) {
	w.Acquire(context.Background(), 1)
	defer w.Release(1)
	ctx := context.TODO()
	_ = w.Acquire(ctx, 1)
	defer w.Release(1)
}

func limited(ctx context.Context, r *rate.Gate) error {
	if _, err := r.Acquire(ctx, 1); err != nil {
		return err
	}
	return nil
}

func item(ctx context.Context, p *pool.Pool[int]) (int, error) {
	item, err := p.Get(ctx)
	if err != nil {
		return 0, err
	}
	defer item.Release()
	return item.Value(), nil
}

func handler(s *sema.Semaphore) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		permit, err := s.Acquire(r.Context(), 1)
		if err != nil {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		defer permit.Release()
		fmt.Fprintln(w, "done")
	}
}
