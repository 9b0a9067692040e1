package main

import (
	"context"
	"errors"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
	"github.com/sourcegraph/conc/pool"
	"golang.org/x/sync/errgroup"
)

// groupScenarios compare package group with errgroup and conc.
func groupScenarios() []scenario {
	const ours, xsync, conc = "sema/group", "errgroup", "conc"
	targets := []target{{impl: ours, rival: xsync, limit: 1}, {impl: ours, rival: conc, limit: 1}}
	against := func(name, about string, functions int, fn func(context.Context) error) scenario {
		return scenario{
			name: "group-" + name, about: about + ", 8 at a time",
			impls: []impl{
				{ours, func() sample { return groupRuns(functions, fn) }},
				{xsync, func() sample { return errgroupRuns(functions, fn) }},
				{conc, func() sample { return concRuns(functions, fn) }},
			},
			targets: targets,
		}
	}
	return []scenario{
		against("tiny", "functions that do nothing", 300_000, nothing),
		against("microsecond", "functions of about a microsecond", 300_000, func(context.Context) error { return compute(1000) }),
		against("20-microseconds", "functions of about 20 microseconds", 20_000, func(context.Context) error { return compute(20_000) }),
	}
}

// atATime is how many functions run at once.
const atATime = 8

func nothing(context.Context) error { return nil }

// errZero is the error of compute that never occurs; the compiler cannot know that, so it
// keeps the loop.
var errZero = errors.New("the product is zero")

// compute takes about a nanosecond a step.
func compute(steps int64) error {
	x := int64(1)
	for i := range steps {
		x = x*31 + i
	}
	if x == 0 {
		return errZero
	}
	return nil
}

func groupRuns(functions int, fn func(context.Context) error) sample {
	return measure(functions, func() {
		g := group.New(context.Background(), sema.New(atATime))
		for range functions {
			g.Go(fn)
		}
		must(g.Wait())
	})
}

func errgroupRuns(functions int, fn func(context.Context) error) sample {
	return measure(functions, func() {
		g, ctx := errgroup.WithContext(context.Background())
		g.SetLimit(atATime)
		for range functions {
			g.Go(func() error { return fn(ctx) })
		}
		must(g.Wait())
	})
}

func concRuns(functions int, fn func(context.Context) error) sample {
	return measure(functions, func() {
		p := pool.New().WithContext(context.Background()).WithCancelOnError().WithMaxGoroutines(atATime)
		for range functions {
			p.Go(fn)
		}
		must(p.Wait())
	})
}
