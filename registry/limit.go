package registry

import (
	"fmt"
	"iter"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// A Limit describes a registered gate at one moment.
type Limit struct {
	Name string
	Why  string
	Kind string // type of the gate, such as "sema.Semaphore" or "rate.Gate"
	Site string // dir/file.go:line where it was registered
	Gate any    // what was registered

	// Shared reports that other processes use the gate as well, as those of packages host
	// and fleet. A change of its capacity affects all of them.
	Shared     bool
	Value      Value  // in force now
	Initial    Value  // what the program asked for; of a shared gate, what was known when it was registered
	Configured bool   // the loaded file sets something
	Note       string // why the file sets it, from its key "why"; "": not stated
	Problem    error  // why what the file sets is not in force; nil: it is

	Stats   sema.Stats
	Details any // what the method Stats of the gate returned: a sema.Stats, pool.Stats, fleet.Stats, …

	gate gate
}

// A Value is a capacity, or a rate.
type Value struct {
	Capacity int64         // permits; 0: paused; sema.MaxCapacity: unlimited
	Window   time.Duration // in which that many permits return, for a rate; 0: not a rate
}

// String returns a value such as "40", "unlimited" or "100 per 1s".
func (v Value) String() string {
	switch {
	case v.Window > 0:
		return fmt.Sprintf("%d per %v", v.Capacity, v.Window)
	case v.Capacity == sema.MaxCapacity:
		return "unlimited"
	}
	return fmt.Sprint(v.Capacity)
}

// Paused reports that the limit grants nothing because its capacity is 0.
func (l Limit) Paused() bool { return l.Value.Capacity == 0 && !l.Stats.Closed && l.gate.resizes() }

// Classes yields the classes of a gate that has some, such as a [wfq.Queue], in no
// particular order. For other gates it yields nothing.
func (l Limit) Classes() iter.Seq2[string, wfq.Stats] {
	if l.gate.classes == nil {
		return func(func(string, wfq.Stats) bool) {}
	}
	return l.gate.classes.Classes()
}

// describeLocked returns the limit of e without statistics.
func (r *Registry) describeLocked(e *entry) Limit {
	l := Limit{
		Name: e.name, Why: e.why, Kind: e.gate.kind, Site: e.site, Gate: e.gate.value, Shared: e.gate.shared != nil,
		Initial: e.initial, Problem: e.problem, gate: e.gate,
	}
	if set := r.settings[e.name]; set != nil {
		l.Configured, l.Note = true, set.why
	}
	return l
}

// measured returns the limit with statistics.
func (l Limit) measured() Limit {
	l.Stats, l.Details = l.gate.stats()
	l.Value = l.gate.valueOf(l.Stats)
	return l
}
