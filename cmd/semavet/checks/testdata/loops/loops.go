// Package loops defers in loops.
package loops

import (
	"context"

	"github.com/sema-go/sema"
)

func each(ctx context.Context, s *sema.Semaphore, jobs []func()) error {
	for _, job := range jobs {
		p, err := s.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		defer p.Release() // want `this defer keeps the permit of every iteration until the function returns; release p in the loop, or move the loop body into a function`
		job()
	}
	return nil
}

func inALiteral(ctx context.Context, s sema.Gate, n int) {
	for i := 0; i < n; i++ {
		if p, err := s.Acquire(ctx, int64(i)); err == nil {
			defer func() { p.Release() }() // want `this defer keeps the permit of every iteration`
		}
	}
}

func iterationIsAFunction(ctx context.Context, s *sema.Semaphore, jobs []func()) error {
	for _, job := range jobs {
		err := func() error {
			p, err := s.Acquire(ctx, 1)
			if err != nil {
				return err
			}
			defer p.Release()
			job()
			return nil
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

func literalDefers(ctx context.Context, s *sema.Semaphore, jobs []func()) error {
	for _, job := range jobs {
		p, err := s.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		func() {
			defer p.Release()
			job()
		}()
	}
	return nil
}

func loopEnds(ctx context.Context, s *sema.Semaphore) error {
	for {
		p, err := s.TryAcquire(ctx, 1)
		if err != nil {
			continue
		}
		defer p.Release()
		break
	}
	return nil
}

func acquiresAll(ctx context.Context, gates map[string]sema.Gate, names []string) error {
	for _, g := range gates {
		p, err := g.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		defer p.Release()
	}
	for _, name := range names {
		p, err := gates[name].Acquire(ctx, 1)
		if err != nil {
			return err
		}
		defer p.Release()
	}
	for _, name := range names {
		p, err := sema.AcquireAll(ctx, sema.Want{Gate: gates[name], N: 1})
		if err != nil {
			return err
		}
		defer p.Release()
	}
	return nil
}

func releasesAll(permits []sema.Permit) {
	for _, p := range permits {
		defer p.Release()
	}
}
