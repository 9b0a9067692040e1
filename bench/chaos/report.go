//go:build unix

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A report is what came of one engine's torment.
type report struct {
	lasted   time.Duration
	capacity int64
	faults   []string

	grants, losses, deaths, cancels int
	wait50, wait99                  time.Duration
	silence                         time.Duration // the longest in which nobody was served
	refusals                        map[string]int

	admitted int64 // at a time, by the guard, at most
	believed int64 // by what holders knew
	barred   int   // writes that the guard did not admit
	order    porcupine.CheckResult
	stuck    int
	missing  int64
	free     time.Duration // until all was to be had, when everybody was gone
	trouble  []string
}

// decision is how long porcupine may take.
const decision = 30 * time.Second

// judge looks at all that the resource has noted.
func (r *report) judge(p plan, resource *resource) {
	all := resource.usages()
	r.capacity, r.barred, r.refusals = p.capacity, resource.barred, resource.refused
	for _, u := range all {
		switch {
		case u.granted.IsZero():
			r.cancels++
			continue
		case u.end == lost:
			r.losses++
		case u.end == died:
			r.deaths++
		}
		r.grants++
	}
	if took := waits(all); len(took) > 0 {
		r.wait50, r.wait99 = took[len(took)/2], took[(len(took)*99-1)/100]
	}
	r.silence = longestSilence(all)
	r.admitted, r.believed = most(admitted(all)), most(believed(all))
	r.order = linearizable(all, p.capacity, decision)
}

// violations are what must not be.
func (r *report) violations() (all []string) {
	add := func(bad bool, format string, args ...any) {
		if bad {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(r.admitted > r.capacity, "the guard admitted %d at a time, of %d", r.admitted, r.capacity)
	add(r.believed > r.capacity, "holders were sure of %d at a time, of %d", r.believed, r.capacity)
	add(r.order == porcupine.Illegal, "there is no order of acquires and releases in which the capacity was kept")
	add(r.stuck > 0, "%d were not served though all was well again", r.stuck)
	add(r.missing > 0, "%d permits were not free %v after everybody was gone", r.missing, r.free)
	add(r.grants == 0, "nobody was served")
	for _, t := range r.trouble {
		add(true, "worker: %s", t)
	}
	return all
}

// String is for people.
func (r report) String() string {
	var b strings.Builder
	counted := map[string]int{}
	for _, f := range r.faults {
		counted[f]++
	}
	fmt.Fprintf(&b, "  %d faults of %d kinds in %v\n", len(r.faults), len(counted), r.lasted.Round(time.Second))
	fmt.Fprintf(&b, "  %d grants (%.0f a second), %d lost, %d with their process; %d not served; wait p50 %v, p99 %v; longest silence %v\n",
		r.grants, float64(r.grants)/r.lasted.Seconds(), r.losses, r.deaths, r.cancels, r.wait50.Round(time.Millisecond), r.wait99.Round(time.Millisecond), r.silence.Round(time.Millisecond))
	for _, why := range slices.Sorted(maps.Keys(r.refusals)) {
		fmt.Fprintf(&b, "  refused %d: %s\n", r.refusals[why], why)
	}
	fmt.Fprintf(&b, "  at a time, of %d: %d by the guard, which barred %d writes; %d by what holders knew; order: %s\n", r.capacity, r.admitted, r.barred, r.believed, r.order)
	fmt.Fprintf(&b, "  stuck %d; missing %d, all free after %v\n", r.stuck, r.missing, r.free.Round(time.Millisecond))
	for _, v := range r.violations() {
		fmt.Fprintf(&b, "  VIOLATION: %s\n", v)
	}
	return b.String()
}
