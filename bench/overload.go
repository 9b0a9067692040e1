package main

import (
	"os"

	"github.com/sema-go/sema/bench/overload"
)

func init() {
	roles["overload"] = func(args []string) { printFromBubble(func() any { return overload.Once(args) }) }
}

// overloadSeeds is the most seeds that a scenario runs with: in virtual time, results hardly
// differ.
const overloadSeeds = 5

// runOverload runs the scenarios of package overload. A bubble of package synctest needs a
// test, so each run has a process of its own.
func runOverload(only string, seeds int) *overload.Suite {
	return overload.RunAll(seeds, only, os.Stderr, func(result any, args ...string) {
		runInBubble(result, append([]string{"overload"}, args...)...)
	})
}
