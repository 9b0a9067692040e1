package sema

import (
	"fmt"
	"time"
)

// An Observer is told what happens at a semaphore, by the goroutine to which
// it happens and with no lock held: it may use the semaphore. It should be
// quick, and may be called concurrently. A semaphore without one pays nothing.
type Observer interface{ Observe(Event) }

// ObserverFunc makes a function an [Observer].
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// Observe has events sent to o. Given several times, all are told.
func Observe(o Observer) SharedOption {
	if o == nil {
		panic("sema: Observe(nil): want an observer")
	}
	return sharedFunc(func(c *config) { c.reports.observers = append(c.reports.observers, o) })
}

// An Event is one thing that happened. Fields that say nothing about its Kind
// are zero.
type Event struct {
	Kind     Kind
	Name     string        // the semaphore's
	Weight   int64         // permits asked for, had or returned
	Wait     time.Duration // how long a caller waited until this
	Hold     time.Duration // how long a permit was held until this
	Waiters  int           // callers in line at this moment
	Capacity int64         // with Resized
	Site     string        // file:line of the caller, with CallSites or for diagnosed permits
	Err      error         // why: with Rejected, TimedOut, Cancelled, Lost
	Report   string        // text for a person, with stacks: with Overheld, Leaked, Inverted, Deadlocked, Mismatched
}

// A Kind is what sort of event it is.
type Kind uint8

// The kinds. Lost, Renewed, FailedOpen and Mismatched come from fleet semaphores
// only.
const (
	Queued       Kind = iota + 1 // a caller begins to wait
	Acquired                     // a permit was had
	Released                     // a permit was given back
	TimedOut                     // MaxWait passed
	Cancelled                    // the caller's context ended
	Rejected                     // refused: full, too large, draining, closed, invalid
	Resized                      // the capacity changed, by Resize or Forget
	Drained                      // Drain began
	Closed                       // Close was called
	Exhausted                    // the last permit went, or somebody queued
	Recovered                    // permits are free again and nobody waits
	Overheld                     // a permit is held for longer than WarnHold
	Lost                         // a lease is gone
	Renewed                      // leases were renewed
	FailedOpen                   // the engine is away and the local limit rules
	Leaked                       // a permit was garbage-collected without Release
	OverReleased                 // more was given back than was out, and refused
	Inverted                     // two semaphores are acquired in both orders
	Deadlocked                   // a deadlock is suspected
	Mismatched                   // asked for with another configuration than it has, which counts
)

var kindNames = [...]string{
	Queued: "queued", Acquired: "acquired", Released: "released", TimedOut: "timed out",
	Cancelled: "cancelled", Rejected: "rejected", Resized: "resized", Drained: "drained",
	Closed: "closed", Exhausted: "exhausted", Recovered: "recovered", Overheld: "overheld",
	Lost: "lost", Renewed: "renewed", FailedOpen: "failed open", Leaked: "leaked",
	OverReleased: "over-released", Inverted: "acquire order inverted", Deadlocked: "deadlock suspected",
	Mismatched: "configuration mismatched",
}

// String is the kind in words.
func (k Kind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}
