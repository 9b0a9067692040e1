//go:build unix

package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// An interval is when something of some weight was in use.
type interval struct {
	from, to time.Time
	weight   int64
}

// most is how much was in use at a time, at most. What ends when something else
// begins does not overlap with it.
func most(all []interval) (peak int64) {
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

// admitted is when the resource let each of them write: from its first write to
// its last.
func admitted(all []*usage) (intervals []interval) {
	for _, u := range all {
		intervals = append(intervals, interval{u.firstWrite, u.lastWrite, u.weight})
	}
	return intervals
}

// believed is when each of them was sure to hold its permit, by its own clock,
// with or without a guard.
func believed(all []*usage) (intervals []interval) {
	for _, u := range all {
		if !u.granted.IsZero() {
			intervals = append(intervals, interval{u.granted, u.sure, u.weight})
		}
	}
	return intervals
}

// linearizable asks porcupine whether there is an order of acquires and ends, in
// keeping with when each began and ended, in which the capacity is never exceeded
// and acquires are in the order of their fences. (Without that, porcupine would
// have to try too many.) A lease that was lost may have ended at any time since
// it was granted; one whose process died, at any time after that. Parts of blocks
// are left out.
func linearizable(all []*usage, capacity int64, within time.Duration) porcupine.CheckResult {
	all = slices.DeleteFunc(slices.Clone(all), func(u *usage) bool { return u.seq == 0 })
	if len(all) == 0 {
		return porcupine.Ok
	}
	slices.SortFunc(all, func(a, b *usage) int { return cmp.Compare(a.seq, b.seq) })
	start, last := all[0].asked, all[0].ended
	for _, u := range all {
		last = later(last, u.ended)
	}
	var calls []porcupine.Operation
	add := func(c change, from, to time.Time) {
		calls = append(calls, porcupine.Operation{ClientId: len(calls), Input: c, Call: from.Sub(start).Nanoseconds(), Return: to.Sub(start).Nanoseconds()})
	}
	for i, u := range all {
		add(change{u.weight, i + 1}, u.asked, u.granted)
		back := change{weight: -u.weight}
		switch u.end {
		case released:
			add(back, u.releasing, u.ended)
		case lost:
			add(back, u.granted, u.ended)
		default:
			add(back, u.ended, last)
		}
	}
	model := porcupine.Model{
		Init: func() any { return change{} },
		Step: func(state, input, _ any) (bool, any) {
			now, c := state.(change), input.(change)
			now.weight += c.weight
			inTurn := c.place == 0 || c.place == now.place+1
			now.place = max(now.place, c.place)
			return inTurn && now.weight <= capacity, now
		},
	}
	return porcupine.CheckOperationsTimeout(model, calls, within)
}

// A change is a weight that is taken or given back, and the place of the grant
// among all of them; as a state, what is taken, and the place of the last grant.
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

// waits are how long those who were served had waited, in order.
func waits(all []*usage) (took []time.Duration) {
	for _, u := range all {
		if !u.granted.IsZero() {
			took = append(took, u.granted.Sub(u.asked))
		}
	}
	slices.Sort(took)
	return took
}

// longestSilence is the longest time in which nobody was served.
func longestSilence(all []*usage) (longest time.Duration) {
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
