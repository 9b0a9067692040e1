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
		defer p.Release() // want `this defer keeps the permit of every round of the loop until the function ends; release p in the loop, or make the round a function of its own`
		job()
	}
	return nil
}

func inALiteral(ctx context.Context, s sema.Gate, n int) {
	for i := 0; i < n; i++ {
		if p, err := s.Acquire(ctx, int64(i)); err == nil {
			defer func() { p.Release() }() // want `this defer keeps the permit of every round`
		}
	}
}

func whereTheRoundIsAFunction(ctx context.Context, s *sema.Semaphore, jobs []func()) error {
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

func whereALiteralDefers(ctx context.Context, s *sema.Semaphore, jobs []func()) error {
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

func whereTheLoopEnds(ctx context.Context, s *sema.Semaphore) error {
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

func whereAllAreTaken(ctx context.Context, gates map[string]sema.Gate, names []string) error {
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

func whereTheyAreReleased(permits []sema.Permit) {
	for _, p := range permits {
		defer p.Release()
	}
}
