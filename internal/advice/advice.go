// Package advice derives from measurements what an operator should know about the capacity of a
// semaphore: how many permits the work needs, how long acquires would wait at other capacities,
// and signs of a slow dependency, of a leak, and of a semaphore that no client needs.
//
// It is pure: [Of] depends on its argument only.
package advice

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Facts are what is known of a semaphore. Zero fields are unknown, unless noted.
type Facts struct {
	Capacity, InUse, Waiting int64 // known
	Rate, Draining           bool  // known

	Period           time.Duration // of what follows
	Arrivals         float64       // acquires per second that were granted, or have waited and were not
	Rejected         float64       // further acquires per second that were rejected without a wait
	Weight           float64       // mean permits of an acquire; 0: 1
	Hold             time.Duration // mean time that a permit is held
	Holds, Waits     uint64        // ends of holds and of waits in the period
	WaitP99          time.Duration
	HoldP50, HoldP99 time.Duration
	OldestHold       time.Duration // of a lease that has not ended
	UsualHold        time.Duration // median of HoldP50 in the past
	Past             time.Duration // how far back Peak reaches
	Peak             int64         // most permits in use at a time in the past
}

// Enough is the number of holds that have to end in the period before a mean is used.
const Enough = 20

// Utilisation is the share of the capacity that should be in use on average: with more, waits rise
// steeply.
const Utilisation = 0.8

// The kinds of findings.
const (
	TooFew   = "too-few-permits"
	Slow     = "slow-downstream"
	Leak     = "leak-suspected"
	Unused   = "always-empty"
	TooMany  = "capacity-unused"
	Saturate = "saturated"
)

// A Finding is something that an operator should know.
type Finding struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// An Expected is the mean wait at a capacity.
type Expected struct {
	Capacity int64         `json:"capacity"`
	Wait     time.Duration `json:"-"`
	Endless  bool          `json:"endless"` // the queue grows without bound
}

// An Advice is what follows from facts.
type Advice struct {
	Sized    bool       // Load, Needed and Expected are known
	Why      string     // why they are not known
	Load     float64    // permits in use on average, by Little's law
	Needed   int64      // capacity at which Load is [Utilisation]
	Expected []Expected // by capacity; ascending
	Note     string     // what Load leaves out; "": nothing
	Findings []Finding  // most important first
}

// Of returns the advice for facts.
func Of(f Facts) Advice {
	var a Advice
	if f.Weight <= 0 {
		f.Weight = 1
	}
	switch {
	case f.Rate:
		a.Why = "the permits of a rate are not held: its capacity is what the protected resource allows"
	case f.Holds < Enough:
		a.Why = fmt.Sprintf("too few holds have ended to compute with means: %d in the last %v, want %d", f.Holds, f.Period.Round(time.Second), Enough)
	default:
		a.size(f)
	}
	a.find(f)
	return a
}

// size applies Little's law: permits in use = acquires per second × permits × seconds held. An
// acquire that is rejected at once is no arrival: a caller that polls would count as many.
func (a *Advice) size(f Facts) {
	a.Sized = true
	if f.Rejected*f.Period.Seconds() >= 1 {
		a.Note = fmt.Sprintf("%.3g acquires a second were rejected at once and are not counted, because callers may repeat them: if each is work of its own, more permits are needed", f.Rejected)
	}
	a.Load = f.Arrivals * f.Weight * f.Hold.Seconds()
	a.Needed = max(1, int64(math.Ceil(a.Load/Utilisation-1e-9)), int64(math.Ceil(f.Weight)))
	capacities := []int64{f.Capacity, a.Needed, f.Capacity / 2, f.Capacity + (f.Capacity+3)/4, 2 * f.Capacity}
	slices.Sort(capacities)
	for _, c := range slices.Compact(capacities) {
		if c >= 1 {
			wait, ok := Wait(f.Arrivals, f.Hold, float64(c)/f.Weight)
			a.Expected = append(a.Expected, Expected{c, wait, !ok})
		}
	}
}

// Wait returns the mean wait of a queue with random arrivals and holds (M/M/c, Erlang C), with
// servers rounded down. ok is false if the arrivals exceed what the servers can do.
func Wait(arrivals float64, hold time.Duration, servers float64) (wait time.Duration, ok bool) {
	c, load := math.Floor(servers), arrivals*hold.Seconds()
	if load <= 0 {
		return 0, true
	}
	if load >= c {
		return 0, false
	}
	// The blocking probability of Erlang B, by its recursion, which cannot overflow.
	blocked := 1.0
	for n := 1.0; n <= c; n++ {
		blocked = load * blocked / (n + load*blocked)
		if blocked < 1e-300 {
			return 0, true
		}
	}
	queued := blocked / (1 - load/c*(1-blocked))
	return time.Duration(queued * hold.Seconds() / (c - load) * float64(time.Second)), true
}

// find adds the findings.
func (a *Advice) find(f Facts) {
	add := func(kind, format string, args ...any) {
		a.Findings = append(a.Findings, Finding{kind, fmt.Sprintf(format, args...)})
	}
	measured := f.Holds >= Enough
	slow := measured && f.UsualHold > 0 && f.HoldP50 >= 2*f.UsualHold && f.HoldP50 >= 10*time.Millisecond
	if slow {
		text := "holds take %v (median), usually %v: the work under the permit has become slower. A higher capacity puts more load on it and will not help"
		if f.WaitP99 < f.HoldP50/10 {
			text += "; waits are short (p99 %v), so permits are not what is missing"
			add(Slow, text, round(f.HoldP50), round(f.UsualHold), round(f.WaitP99))
		} else {
			add(Slow, text, round(f.HoldP50), round(f.UsualHold))
		}
	}
	if limit := max(10*f.HoldP99, time.Minute); measured && f.OldestHold > limit {
		add(Leak, "a lease is held for %v, and 99 %% of the holds end within %v: it may never be released", round(f.OldestHold), round(f.HoldP99))
	}
	switch {
	case a.Sized && a.Load > float64(f.Capacity):
		add(TooFew, "the acquires need %.1f permits on average, and the capacity is %d: the queue grows, or acquires are rejected", a.Load, f.Capacity)
	case a.Sized && a.Load > Utilisation*float64(f.Capacity) && !slow:
		add(TooFew, "%.0f %% of the permits are in use on average: %d would be %.0f %%", 100*a.Load/float64(f.Capacity), a.Needed, 100*Utilisation)
	case f.InUse >= f.Capacity && f.Waiting > 0 && !f.Draining && !slow:
		add(Saturate, "all permits are in use, %d waiting", f.Waiting)
	}
	switch {
	case f.Past >= time.Hour && f.Peak == 0 && f.InUse == 0:
		add(Unused, "no permit was in use in the last %v", f.Past.Round(time.Minute))
	case f.Past >= time.Hour && f.Peak > 0 && f.Peak*4 <= f.Capacity:
		add(TooMany, "at most %d of %d permits were in use in the last %v: the capacity does not bound anything", f.Peak, f.Capacity, f.Past.Round(time.Minute))
	}
}

// round rounds a duration to three digits.
func round(d time.Duration) time.Duration {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
}
