//go:build unix

// Command chaos torments real engines and looks whether fleet permits hold: worker
// processes share one semaphore and write to a guarded resource while servers are
// killed, networks fail and workers are paused beyond their TTL.
//
//	go -C bench run ./chaos                      every engine, a minute each
//	go -C bench run ./chaos -engine etcd -for 10m
//
// It fails if more was admitted than the capacity, by the guard or by what
// holders knew; if somebody was not served though all was well again; or if a
// permit was not to be had once everybody was gone.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
)

func main() {
	workIfAssigned()
	var names []string
	for _, e := range engines {
		names = append(names, e.name)
	}
	only := flag.String("engine", "", "only this one of "+strings.Join(names, ", "))
	plan := plan{log: func(text string) { fmt.Println(text) }}
	flag.DurationVar(&plan.lasts, "for", time.Minute, "how long each engine is tormented")
	flag.DurationVar(&plan.ttl, "ttl", 3*time.Second, "the semaphore's TTL")
	flag.Int64Var(&plan.capacity, "capacity", 5, "the semaphore's capacity")
	flag.StringVar(&plan.only, "faults", "", "only those whose name has this in it")
	flag.Uint64Var(&plan.seed, "seed", uint64(time.Now().UnixNano()), "which faults, when")
	flag.IntVar(&plan.massacre, "massacre", 100, "how many clients are killed at once, once")
	flag.Parse()
	failed := false
	for _, e := range engines {
		if *only != "" && e.name != *only {
			continue
		}
		fmt.Printf("\n%s: %s; seed %d\n", e.name, e.about, plan.seed)
		report, err := plan.torment(e)
		switch {
		case errors.Is(err, enginetest.ErrSkipped):
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
