package sema

import (
	"fmt"
	"time"
)

// An Observer receives what happens at a semaphore, by the goroutine to which
// it happens and with no lock held: it may use the semaphore. It should be
// quick, and may be called concurrently. A semaphore without one pays nothing.
type Observer interface{ Observe(Event) }

// ObserverFunc makes a function an [Observer].
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// Observe has events sent to o. Given several times, all receive them.
func Observe(o Observer) SharedOption {
	if o == nil {
		panic("sema: Observe(nil): want an observer")
	}
	return sharedFunc(func(c *config) { c.reports.observers = append(c.reports.observers, o) })
}

// An Event is one thing that happened. Fields that say nothing about its Kind
// are zero.
type Event struct {
	Kind     EventKind
	Name     string        // the semaphore's
	Class    string        // the tenant, tier or kind of work, of gates that have classes
	Weight   int64         // permits asked for, had or returned
	Wait     time.Duration // how long a caller waited until this
	Hold     time.Duration // how long a permit was held until this
	Waiters  int           // callers queued at this moment
	Capacity int64         // with EventResized
	Site     string        // file:line of the caller, with CallSites or for diagnosed permits
	Err      error         // why: with EventRejected, EventTimedOut, EventCancelled, EventLost
	Report   string        // text for a person, with stacks: of EventOverheld, EventLeaked, EventInverted, EventDeadlocked, EventMismatched
}

// An EventKind is what an [Event] reports.
type EventKind uint8

// The kinds. EventLost, EventRenewed and EventFailedOpen come from fleet semaphores
// only, EventMismatched from host and fleet semaphores.
const (
	EventQueued       EventKind = iota + 1 // a caller begins to wait
	EventAcquired                          // a permit was granted
	EventReleased                          // a permit was released
	EventTimedOut                          // MaxWait passed
	EventCancelled                         // the caller's context ended
	EventRejected                          // the call failed: full, too large, draining, closed, invalid
	EventResized                           // the capacity changed, by Resize or Forget
	EventDrained                           // Drain began
	EventClosed                            // Close was called
	EventExhausted                         // the last permit was acquired, or a caller queued
	EventRecovered                         // permits are free again and no caller waits
	EventOverheld                          // a permit is held for longer than WarnHold
	EventLost                              // a lease is gone
	EventRenewed                           // leases were renewed
	EventFailedOpen                        // the store is unavailable and the local limit applies
	EventLeaked                            // a permit was garbage-collected without Release
	EventOverReleased                      // more was released than acquired, and rejected
	EventInverted                          // two semaphores are acquired in both orders
	EventDeadlocked                        // a deadlock is suspected
	EventMismatched                        // opened with another configuration than the stored one, which applies
)

var kindNames = [...]string{
	EventQueued: "queued", EventAcquired: "acquired", EventReleased: "released", EventTimedOut: "timed out",
	EventCancelled: "cancelled", EventRejected: "rejected", EventResized: "resized", EventDrained: "drained",
	EventClosed: "closed", EventExhausted: "exhausted", EventRecovered: "recovered", EventOverheld: "overheld",
	EventLost: "lost", EventRenewed: "renewed", EventFailedOpen: "failed open", EventLeaked: "leaked",
	EventOverReleased: "over-released", EventInverted: "acquire order inverted", EventDeadlocked: "deadlock suspected",
	EventMismatched: "configuration mismatched",
}

// String returns the kind in words.
func (k EventKind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}
