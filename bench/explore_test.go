package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/sematest"
)

// TestExplore_Schedules explores dinners at which the forks are taken in order, so that no
// schedule fails and all of them run. It prints how long that took, for the suite patterns.
func TestExplore_Schedules(t *testing.T) {
	schedules := 100
	if text := os.Getenv(schedulesVariable); text != "" {
		var err error
		if schedules, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	sematest.Explore(t, func(w *sematest.World) {
		var forks [3]sema.Gate
		for i := range forks {
			forks[i] = w.Gate(sema.New(1))
		}
		for i := range forks {
			first, second := min(i, (i+1)%3), max(i, (i+1)%3)
			w.Go(fmt.Sprint("philosopher ", i), func(ctx context.Context) {
				a, err := forks[first].Acquire(ctx, 1)
				must(err)
				b, err := forks[second].Acquire(ctx, 1)
				must(err)
				b.Release()
				a.Release()
			})
		}
	}, sematest.Schedules(schedules))
	fmt.Printf("%d schedules took %d ns\n", schedules, time.Since(start).Nanoseconds())
}
