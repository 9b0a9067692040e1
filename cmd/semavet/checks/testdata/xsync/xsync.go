// Package xsync uses golang.org/x/sync/semaphore correctly, as programs do.
package xsync

import (
	"context"
	"log"
	"sync"

	"golang.org/x/sync/semaphore"
)

// workers waits for all workers with an acquire of the whole capacity, as the
// example of x/sync does.
func workers(ctx context.Context, jobs []int) {
	const limit = 4
	sem := semaphore.NewWeighted(limit)
	for i := range jobs {
		if err := sem.Acquire(ctx, 1); err != nil {
			log.Printf("acquire: %v", err)
			break
		}
		go func() {
			defer sem.Release(1)
			jobs[i]++
		}()
	}
	if err := sem.Acquire(ctx, limit); err != nil {
		log.Printf("acquire: %v", err)
	}
}

// sequencer releases in a goroutine that it starts, as gofumpt does.
type sequencer struct {
	sem *semaphore.Weighted
	wg  sync.WaitGroup
	max int64
}

func newSequencer(max int64) *sequencer {
	return &sequencer{sem: semaphore.NewWeighted(max), max: max}
}

func (s *sequencer) add(weight int64, f func()) {
	if weight < 0 || weight > s.max {
		weight = s.max
	}
	if err := s.sem.Acquire(context.TODO(), weight); err != nil {
		weight = 0
		f = func() {}
	}
	s.wg.Go(func() {
		f()
		s.sem.Release(weight)
	})
}

// resources are acquired and released by different methods, as in puddle.
type resources struct {
	sem  *semaphore.Weighted
	free []int
}

func (r *resources) acquire(ctx context.Context) (int, error) {
	waited := false
	if !r.sem.TryAcquire(1) {
		waited = true
		if err := r.sem.Acquire(ctx, 1); err != nil {
			return 0, err
		}
	}
	if waited && len(r.free) == 0 {
		r.sem.Release(1)
		return 0, context.Canceled
	}
	return r.free[0], nil
}

func (r *resources) release(n int) {
	defer r.sem.Release(1)
	r.free = append(r.free, n)
}

// acquireAll acquires by powers of two for its caller.
func acquireAll(sem *semaphore.Weighted, n int) int {
	if sem.TryAcquire(int64(n)) {
		return n
	}
	var acquired int
	for i := n; i >= 0; i-- {
		if sem.TryAcquire(1 << i) {
			acquired += 1 << i
		}
	}
	return acquired
}

// throttle acquires from all semaphores, or from none.
func throttle(ctx context.Context, sems []*semaphore.Weighted, n int64) error {
	for i, sem := range sems {
		if err := sem.Acquire(ctx, n); err != nil {
			for _, sem := range sems[:i] {
				sem.Release(n)
			}
			return err
		}
	}
	defer func() {
		for _, sem := range sems {
			sem.Release(n)
		}
	}()
	return nil
}
