//go:build unix

// Command chaos injects faults into real stores and checks that fleet permits
// keep their guarantees. Worker processes share one semaphore and write to a
// guarded resource while servers are killed, networks fail and workers are
// paused for longer than their TTL.
//
//	go -C bench run ./chaos                      every store, a minute each
//	go -C bench run ./chaos -store etcd -for 10m
//
// It fails in three cases:
//
//   - More than the capacity was in use at a time, according to the guard or to
//     the holders' own checks.
//   - A waiter was not served after the last fault ended.
//   - A permit was not free after all workers had ended.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sema-go/sema/internal/storetest"
)

func main() {
	runWorkerIfAssigned()
	var names []string
	for _, e := range setups {
		names = append(names, e.name)
	}
	only := flag.String("store", "", "test only this one of "+strings.Join(names, ", "))
	plan := plan{log: func(text string) { fmt.Println(text) }}
	flag.DurationVar(&plan.duration, "for", time.Minute, "for how long faults are injected into each store")
	flag.DurationVar(&plan.ttl, "ttl", 3*time.Second, "the semaphore's TTL")
	flag.Int64Var(&plan.capacity, "capacity", 5, "the semaphore's capacity")
	flag.StringVar(&plan.only, "faults", "", "inject only faults whose name contains this")
	flag.Uint64Var(&plan.seed, "seed", uint64(time.Now().UnixNano()), "seed of the order and the times of faults")
	flag.IntVar(&plan.massKill, "massacre", 100, "how many clients are killed at once, one time per store")
	flag.Parse()
	failed := false
	for _, e := range setups {
		if *only != "" && e.name != *only {
			continue
		}
		fmt.Printf("\n%s: %s; seed %d\n", e.name, e.about, plan.seed)
		report, err := plan.run(e)
		switch {
		case errors.Is(err, storetest.ErrSkipped):
			fmt.Println("  skipped:", err)
			continue
		case err != nil:
			fmt.Println("  failed:", err)
			failed = true
			continue
		}
		fmt.Print(report)
		failed = failed || len(report.violations()) > 0
	}
	if failed {
		os.Exit(1)
	}
}
