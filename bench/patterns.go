package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"time"
)

func init() { suites["patterns"] = patternScenarios }

// patternScenarios compares the packages that are built on package sema.
func patternScenarios() []scenario {
	return slices.Concat(rateScenarios(), wfqScenarios(), poolScenarios(), groupScenarios(), classicScenarios(), []scenario{
		{
			name: "explore", about: "schedules of three philosophers that take their forks in order",
			impls:   []impl{{"sematest.Explore", exploreTables}},
			targets: []target{{impl: "sematest.Explore", limit: 100_000, value: func(r row) float64 { return r.NsOp }, unit: "ns a schedule"}},
		},
	})
}

// schedulesVariable is the number of schedules that TestExplore_Schedules runs.
const schedulesVariable = "BENCH_SCHEDULES"

// exploreTables runs TestExplore_Schedules in another process, since a schedule needs a
// test.
func exploreTables() sample {
	const schedules = 20_000
	test := exec.Command("go", "test", "-count=1", "-run", "^TestExplore_Schedules$", "-v", ".")
	test.Env = append(os.Environ(), schedulesVariable+"="+strconv.Itoa(schedules))
	out, err := test.CombinedOutput()
	took := regexp.MustCompile(`schedules took (\d+) ns`).FindSubmatch(out)
	if err != nil || took == nil {
		panic(fmt.Sprintf("go test: %v\n%s", err, out))
	}
	elapsed, err := strconv.ParseInt(string(took[1]), 10, 64)
	must(err)
	return sample{ops: schedules, elapsed: time.Duration(elapsed)}
}
