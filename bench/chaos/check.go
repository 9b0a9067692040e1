//go:build unix

package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// An interval is a time during which some weight was in use.
type interval struct {
	from, to time.Time
	weight   int64
}

// peakWeight returns the maximum weight in use at a time. An interval that ends when
// another begins does not overlap with it.
func peakWeight(all []interval) (peak int64) {
	type edge struct {
		at     time.Time
		weight int64
	}
	var edges []edge
	for _, i := range all {
		if i.to.After(i.from) {
			edges = append(edges, edge{i.from, i.weight}, edge{i.to, -i.weight})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.weight, b.weight)) })
	sum := int64(0)
	for _, e := range edges {
		sum += e.weight
		peak = max(peak, sum)
	}
	return peak
}

// admitted returns the intervals in which the resource admitted writes: from
// the first write of each usage to its last.
func admitted(all []*usage) (intervals []interval) {
	for _, u := range all {
		intervals = append(intervals, interval{u.firstWrite, u.lastWrite, u.weight})
	}
	return intervals
}

// confirmed returns the intervals in which each holder's own check, by its own
// clock, found the permit held, with or without a guard.
func confirmed(all []*usage) (intervals []interval) {
	for _, u := range all {
		if !u.granted.IsZero() {
			intervals = append(intervals, interval{u.granted, u.confirmedAt, u.weight})
		}
	}
	return intervals
}

// linearizable uses porcupine to check whether there is an order of acquires
// and ends that is consistent with when each began and ended. In that order the
// capacity must never be exceeded, and acquires must be in the order of their
// fences. (Without the order of fences, porcupine would have to try too many.)
//
// A lost lease may have ended at any time after it was granted. A lease whose
// process ended may have ended at any time after that. Parts of blocks are left
// out.
func linearizable(all []*usage, capacity int64, within time.Duration) porcupine.CheckResult {
	all = slices.DeleteFunc(slices.Clone(all), func(u *usage) bool { return u.seq == 0 })
	if len(all) == 0 {
		return porcupine.Ok
	}
	slices.SortFunc(all, func(a, b *usage) int { return cmp.Compare(a.seq, b.seq) })
	start, last := all[0].requestedAt, all[0].ended
	for _, u := range all {
		last = later(last, u.ended)
	}
	var calls []porcupine.Operation
	add := func(c change, from, to time.Time) {
		calls = append(calls, porcupine.Operation{ClientId: len(calls), Input: c, Call: from.Sub(start).Nanoseconds(), Return: to.Sub(start).Nanoseconds()})
	}
	for i, u := range all {
		add(change{u.weight, i + 1}, u.requestedAt, u.granted)
		release := change{weight: -u.weight}
		switch u.end {
		case released:
			add(release, u.releasing, u.ended)
		case lost:
			add(release, u.granted, u.ended)
		default:
			add(release, u.ended, last)
		}
	}
	model := porcupine.Model{
		Init: func() any { return change{} },
		Step: func(state, input, _ any) (bool, any) {
			now, c := state.(change), input.(change)
			now.weight += c.weight
			inOrder := c.place == 0 || c.place == now.place+1
			now.place = max(now.place, c.place)
			return inOrder && now.weight <= capacity, now
		},
	}
	return porcupine.CheckOperationsTimeout(model, calls, within)
}

// A change is an acquired or, if negative, released weight, and the place of
// the grant among all grants. As a state, it is the weight in use and the place
// of the last grant.
type change struct {
	weight int64
	place  int
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// waitTimes returns the waiting times of all grants, sorted.
func waitTimes(all []*usage) (took []time.Duration) {
	for _, u := range all {
		if !u.granted.IsZero() {
			took = append(took, u.granted.Sub(u.requestedAt))
		}
	}
	slices.Sort(took)
	return took
}

// longestGrantGap returns the longest time between two grants.
func longestGrantGap(all []*usage) (longest time.Duration) {
	var served []time.Time
	for _, u := range all {
		if !u.granted.IsZero() {
			served = append(served, u.granted)
		}
	}
	slices.SortFunc(served, time.Time.Compare)
	for i := 1; i < len(served); i++ {
		longest = max(longest, served[i].Sub(served[i-1]))
	}
	return longest
}
