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

// A report is the result of a run with one store.
type report struct {
	elapsed  time.Duration
	capacity int64
	faults   []string

	grants, losses, endedWithProcess, cancels int
	wait50, wait99                            time.Duration
	longestGap                                time.Duration  // longest time without a grant
	failedAcquires                            map[string]int // number of failed acquires by error

	admitted       int64 // maximum in use at a time, according to the guard
	confirmed      int64 // the same according to the holders' own checks
	rejectedWrites int   // writes that the guard rejected
	order          porcupine.CheckResult
	stuck          int
	missing        int64
	freeAfter      time.Duration // time until everything was free after all workers ended
	failures       []string
}

// checkTimeout bounds the time porcupine may take.
const checkTimeout = 30 * time.Second

// evaluate fills the report from the records of the resource.
func (r *report) evaluate(p plan, resource *resource) {
	all := resource.usages()
	r.capacity, r.rejectedWrites, r.failedAcquires = p.capacity, resource.rejectedWrites, resource.failed
	for _, u := range all {
		switch {
		case u.granted.IsZero():
			r.cancels++
			continue
		case u.end == lost:
			r.losses++
		case u.end == processEnded:
			r.endedWithProcess++
		}
		r.grants++
	}
	if took := waitTimes(all); len(took) > 0 {
		r.wait50, r.wait99 = took[len(took)/2], took[(len(took)*99-1)/100]
	}
	r.longestGap = longestGrantGap(all)
	r.admitted, r.confirmed = peakWeight(admitted(all)), peakWeight(confirmed(all))
	r.order = linearizable(all, p.capacity, checkTimeout)
}

// violations returns the guarantees that were violated.
func (r *report) violations() (all []string) {
	add := func(bad bool, format string, args ...any) {
		if bad {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(r.admitted > r.capacity, "the guard admitted %d at a time; the capacity is %d", r.admitted, r.capacity)
	add(r.confirmed > r.capacity, "holders relied on %d at a time; the capacity is %d", r.confirmed, r.capacity)
	add(r.order == porcupine.Illegal, "there is no order of acquires and releases in which the capacity was kept")
	add(r.stuck > 0, "%d waiters were not served after the last fault ended", r.stuck)
	add(r.missing > 0, "%d permits were not free %v after all workers ended", r.missing, r.freeAfter)
	add(r.grants == 0, "no permit was granted")
	for _, t := range r.failures {
		add(true, "worker: %s", t)
	}
	return all
}

// String returns a summary for the terminal.
func (r report) String() string {
	var b strings.Builder
	counted := map[string]int{}
	for _, f := range r.faults {
		counted[f]++
	}
	fmt.Fprintf(&b, "  %d faults of %d kinds in %v\n", len(r.faults), len(counted), r.elapsed.Round(time.Second))
	fmt.Fprintf(&b, "  %d grants (%.0f a second), %d lost, %d ended with their process; %d not served; wait p50 %v, p99 %v; longest time without a grant %v\n",
		r.grants, float64(r.grants)/r.elapsed.Seconds(), r.losses, r.endedWithProcess, r.cancels, r.wait50.Round(time.Millisecond), r.wait99.Round(time.Millisecond), r.longestGap.Round(time.Millisecond))
	for _, why := range slices.Sorted(maps.Keys(r.failedAcquires)) {
		fmt.Fprintf(&b, "  failed %d: %s\n", r.failedAcquires[why], why)
	}
	fmt.Fprintf(&b, "  in use at a time, of %d: %d according to the guard, which rejected %d writes; %d according to the holders; order: %s\n", r.capacity, r.admitted, r.rejectedWrites, r.confirmed, r.order)
	fmt.Fprintf(&b, "  stuck %d; missing %d, all free after %v\n", r.stuck, r.missing, r.freeAfter.Round(time.Millisecond))
	for _, v := range r.violations() {
		fmt.Fprintf(&b, "  VIOLATION: %s\n", v)
	}
	return b.String()
}
