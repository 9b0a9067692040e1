// Command bench compares Sema with what people use today, side by side in one
// process, and prints medians and ratios.
//
//	go run . core                 # a table, and how each bar was met
//	go run . core --json          # for programs
//	go run . core --markdown      # the table in README
//	go run . core --only 64-on-8  # scenarios whose name contains the text
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

var suites = map[string]func() []scenario{
	"core": coreScenarios,
}

func main() {
	if len(os.Args) < 2 || suites[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: bench SUITE [--json|--markdown] [--rounds N] [--only TEXT]\nsuites: core")
		os.Exit(2)
	}
	flags := flag.NewFlagSet("bench "+os.Args[1], flag.ExitOnError)
	asJSON := flags.Bool("json", false, "print JSON")
	asMarkdown := flags.Bool("markdown", false, "print the table in README")
	rounds := flags.Int("rounds", 9, "how often each implementation runs; medians are reported")
	only := flags.String("only", "", "run only scenarios whose name contains this")
	flags.Parse(os.Args[2:])
	if *rounds < 1 {
		fmt.Fprintln(os.Stderr, "bench: --rounds must be at least 1")
		os.Exit(2)
	}
	scenarios := suites[os.Args[1]]()
	scenarios = slices.DeleteFunc(scenarios, func(s scenario) bool { return !strings.Contains(s.name, *only) })
	var progress io.Writer = os.Stderr
	result := runSuite(os.Args[1], scenarios, *rounds, progress)
	switch {
	case *asJSON:
		if err := result.writeJSON(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
	case *asMarkdown:
		result.writeMarkdown(os.Stdout)
	default:
		result.writeText(os.Stdout)
	}
}
