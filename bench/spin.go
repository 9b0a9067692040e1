package main

import (
	"context"
	"fmt"
	"sync"
)

// spinScenarios compare a Spin with a mutex and with semaphores of one permit, for
// goroutines that compete for a critical section all the time.
func spinScenarios() []scenario {
	var all []scenario
	for _, section := range []struct {
		name, about string
		ops         int
		hold        func()
	}{
		{"short", "ten nanoseconds", 1_700_000, shortHold},
		{"microsecond", "a microsecond", 170_000, microsecond},
	} {
		var targets []target
		if section.name == "short" { // what a Spin is for
			targets = []target{{impl: "sema.Spin", rival: "sema.Semaphore", limit: 1}}
		}
		for _, goroutines := range []int{2, 8, 64} {
			l := load{goroutines: goroutines, capacity: 1, ops: section.ops, every: 17, hold: section.hold}
			all = append(all, scenario{
				name:    fmt.Sprintf("spin-%d-%s", goroutines, section.name),
				about:   fmt.Sprintf("%d goroutines compete for a critical section of about %s", goroutines, section.about),
				impls:   exclusive(l, semaSpin, syncMutex, semaSemaphore, semaUnfair),
				targets: targets,
			})
		}
	}
	return all
}

// syncMutex observes no context.
var syncMutex = contender{"sync.Mutex", func(int64) pairs {
	var mu sync.Mutex
	return func(_ context.Context, n int, _ int64, hold func()) {
		for range n {
			mu.Lock()
			hold()
			mu.Unlock()
		}
	}
}}

// exclusive runs like timed. Each holder increments a variable that nothing else guards, so
// a contender that admits two at once is found.
func exclusive(l load, contenders ...contender) []impl {
	inside, work := 0, l.hold
	l.hold = func() { inside++; work() }
	impls := timed(l, contenders...)
	for i, im := range impls {
		impls[i].run = func() sample {
			inside = 0
			s := im.run()
			if inside != s.ops {
				panic(fmt.Sprintf("%s: %d of %d critical sections were lost: two at once", im.name, s.ops-inside, s.ops))
			}
			return s
		}
	}
	return impls
}
