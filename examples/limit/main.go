// Command limit shows a semaphore at work: thirty jobs of different weights
// share a capacity of eight. Each line shows one point in time, each block a
// permit in use.
//
//	go run ./examples/limit
//	go run ./examples/limit -capacity 4 -jobs 12 -order lifo
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema"
)

func main() {
	capacity := flag.Int64("capacity", 8, "capacity of the semaphore")
	jobs := flag.Int("jobs", 30, "jobs to run")
	order := flag.String("order", "fair", "fair, unfair or lifo")
	flag.Parse()
	orders := map[string]sema.Option{"fair": sema.Fair, "unfair": sema.Unfair, "lifo": sema.LIFO}
	if *capacity < 1 || *jobs < 1 || orders[*order] == nil {
		fmt.Fprintln(os.Stderr, "limit: want a capacity and a number of jobs of at least 1, and an order of fair, unfair or lifo")
		os.Exit(2)
	}
	// Ctrl-C cancels waiting jobs; running jobs are completed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s := sema.New(*capacity, sema.Name("demo"), orders[*order])
	done, cancelled := run(ctx, s, *jobs)
	if err := s.Drain(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Printf("%d jobs done, %d cancelled, never more than %d permits in use\n", done, cancelled, *capacity)
}

// run starts all jobs at once and draws until they have ended.
func run(ctx context.Context, s *sema.Semaphore, jobs int) (done, cancelled int) {
	var mu sync.Mutex
	var working sync.WaitGroup
	for range jobs {
		working.Go(func() {
			weight := 1 + rand.Int64N(min(3, s.Stats().Capacity))
			err := sema.Do(ctx, s, weight, func(context.Context) error {
				time.Sleep(time.Duration(50+rand.IntN(250)) * time.Millisecond)
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, context.Canceled) {
				cancelled++
			} else {
				done++
			}
		})
	}
	ended := make(chan struct{})
	go func() { working.Wait(); close(ended) }()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-ended:
			tick.Stop()
			return done, cancelled
		case <-tick.C:
			draw(s.Stats())
		}
	}
}

func draw(st sema.Stats) {
	used := strings.Repeat("█", int(st.InUse)) + strings.Repeat("·", int(st.Free))
	fmt.Printf("%s  %d of %d in use, %d waiting\n", used, st.InUse, st.Capacity, st.Waiters)
}
