// Command bench compares Sema with the libraries and tools commonly used today,
// side by side in one run. It prints medians and ratios.
//
//	go run . core                 # in a process: a table, and the result for each target
//	go run . host                 # among the processes of a machine
//	go run . fleet --store URL    # among machines, through a store
//	go run . service              # through `sema serve`
//	go run . patterns             # rates, fair queues, pools, groups, buffers
//	go run . admit                # admission control, also under overload
//	go run . growth               # cost as a function of size; writes docs/growth.md
//	go run . metrics              # what exporters of metrics cost
//	go run . core --json          # print JSON
//	go run . core --readme FILE   # write the tables into FILE, between its marks
//	go run . core --only 64-on-8  # scenarios whose name contains the text
//	go run . core --processor-time # on a busy machine: processor time instead of elapsed time
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/sema-go/sema/bench/growth"
	"github.com/sema-go/sema/internal/storetest"
)

// suites contains the scenarios that are available on this system, by suite.
var suites = map[string]func() []scenario{
	"core": coreScenarios,
}

// roles contains the entry points of the processes that scenarios start.
var roles = map[string]func(args []string){}

// programs contains the measurements that are not comparisons of implementations, and have
// flags of their own.
var programs = map[string]func(args []string) error{"growth": growth.Main}

func main() {
	var cancel context.CancelFunc
	caller, cancel = context.WithCancel(context.Background())
	defer cancel()
	if len(os.Args) > 1 && programs[os.Args[1]] != nil {
		if err := programs[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "bench %s: %v\n", os.Args[1], err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		roles[os.Args[1]](os.Args[2:])
		return
	}
	if len(os.Args) < 2 || suites[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: bench SUITE [--json|--readme FILE] [--rounds N] [--only TEXT] [--processor-time]\nsuites:",
			strings.Join(slices.Sorted(maps.Keys(suites)), ", ")+"\nalso: bench growth --help")
		os.Exit(2)
	}
	flags := flag.NewFlagSet("bench "+os.Args[1], flag.ExitOnError)
	asJSON := flags.Bool("json", false, "print JSON")
	readme := flags.String("readme", "", "write the tables into this file, between the marks <!-- bench:SUITE --> and <!-- end -->")
	rounds := flags.Int("rounds", 9, "how often each implementation runs; medians are reported")
	only := flags.String("only", "", "run only scenarios whose name contains this")
	flags.BoolVar(&byProcessorTime, "processor-time", false, "measure processor time instead of elapsed time, for a busy machine; of all cores together")
	flags.StringVar(&against, "against", "", "a build of this program at another commit, to compare with in scenario counters of suite core")
	registerFleetFlags(flags)
	profile := flags.String("cpuprofile", "", "write a CPU profile of the whole run to this file")
	flags.Parse(os.Args[2:])
	if *rounds < 1 {
		fmt.Fprintln(os.Stderr, "bench: --rounds must be at least 1")
		os.Exit(2)
	}
	scenarios := suites[os.Args[1]]()
	scenarios = slices.DeleteFunc(scenarios, func(s scenario) bool { return !strings.Contains(s.name, *only) })
	stop, err := startProfile(*profile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	var result suite
	err = storetest.Run(func(s *storetest.Scope) {
		scope = s
		result = runSuite(os.Args[1], scenarios, *rounds, os.Stderr)
		if os.Args[1] == "admit" {
			result.overload = runOverload(*only, min(*rounds, overloadSeeds))
		}
	})
	stop()
	switch {
	case err != nil:
	case *asJSON:
		err = result.writeJSON(os.Stdout)
	case *readme != "":
		err = result.writeInto(*readme)
	default:
		result.writeText(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func startProfile(file string) (stop func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}
