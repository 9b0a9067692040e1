// Command background shares workers between requests of users and a batch that matters
// less. Requests are served first, and the batch uses what they leave.
//
//	go run ./examples/background
//
// Long jobs do not give way while they hold a permit. So the batch acquires one for each
// chunk of its work, and yields between chunks. One worker is never used by the batch, so
// that a request after a quiet time need not wait for a chunk to end. With
// [wfq.Aging] the batch would be served at last even if requests never ended.
//
// It prints how many chunks started while a request waited: none, after the first
// requests were queued. Its exit code is 1 otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/examples/internal/peak"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/wfq"
)

func main() {
	workers := flag.Int64("workers", 4, "workers, at least 2")
	requests := flag.Int("requests", 20, "requests of users")
	jobs := flag.Int("jobs", 8, "jobs of the batch, of 10 chunks each")
	flag.Parse()
	if *workers < 2 || *requests < 1 || *jobs < 1 {
		fmt.Fprintln(os.Stderr, "background: want at least 2 workers, and requests and jobs of at least 1")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *workers, *requests, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "background:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, workers int64, requests, jobs int) error {
	queue := wfq.New(workers, sema.Name("workers"))
	queue.Set("user", wfq.Share{Tier: 1})
	queue.Set("batch", wfq.Share{Tier: 0, Max: workers - 1})
	s := &service{users: queue.Class("user"), batch: queue.Class("batch")}

	// All workers are busy until all callers have queued, so that each run shows the same.
	busy, err := s.users.Acquire(ctx, workers)
	if err != nil {
		return err
	}
	defer busy.Release()
	g := group.New(ctx, nil)
	for range jobs {
		g.Go(s.job)
	}
	for range requests {
		g.Go(s.request)
	}
	for g.Context().Err() == nil && (s.batch.Stats().Waiters < jobs || s.users.Stats().Waiters < requests) {
		time.Sleep(time.Millisecond)
	}
	busy.Release()
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Printf("%d requests and %d chunks done\n", s.requests.Load(), s.chunks.Load())
	fmt.Printf("%d chunks started while a request waited\n", s.intruded.Load())
	fmt.Printf("at most %d of %d workers used by the batch\n", s.batching.Most(), workers)
	if s.intruded.Load() > 0 {
		return fmt.Errorf("%d chunks started before requests", s.intruded.Load())
	}
	return nil
}

type service struct {
	users, batch               *wfq.Class
	requests, chunks, intruded atomic.Int64
	batching                   peak.Meter
}

// request serves a user.
func (s *service) request(ctx context.Context) error {
	return sema.Do(ctx, s.users, 1, func(context.Context) error {
		time.Sleep(2 * time.Millisecond)
		s.requests.Add(1)
		return nil
	})
}

// job does the work of the batch in chunks, and yields after each.
func (s *service) job(ctx context.Context) error {
	for range 10 {
		err := sema.Do(ctx, s.batch, 1, func(context.Context) error {
			s.batching.Add(1)
			defer s.batching.Add(-1)
			if s.users.Stats().Waiters > 0 {
				s.intruded.Add(1)
			}
			time.Sleep(2 * time.Millisecond)
			s.chunks.Add(1)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
