package sema

import (
	"fmt"
	"time"
)

// An Observer receives the events of a semaphore. Observe runs in the goroutine of the
// caller that the event is about. Events of a [Ticket] and of the diagnostics may come
// from any goroutine. Observe is called with no lock held, so it may use the semaphore.
// It should be quick, and may be called concurrently. A semaphore without observers
// pays nothing.
type Observer interface{ Observe(Event) }

// ObserverFunc is a function that implements [Observer].
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// Observe sends events to o. If given several times, all observers receive them. It
// panics if o is nil.
func Observe(o Observer) SharedOption {
	if o == nil {
		panic("sema: Observe(nil): want an observer")
	}
	return sharedFunc(func(c *config) { c.reports.observers = append(c.reports.observers, o) })
}

// An Event describes one thing that happened. Fields that do not apply to its Kind are
// zero.
type Event struct {
	Kind     EventKind
	Name     string        // name of the semaphore
	Class    string        // tenant, tier or kind of work, for gates that have classes
	Weight   int64         // permits requested, acquired or released
	Wait     time.Duration // how long the caller has waited
	Hold     time.Duration // how long the permit has been held
	Waiters  int           // callers queued at that moment, including one that is about to wait
	Capacity int64         // new capacity, for EventResized
	Site     string        // file:line of the caller, with CallSites or for recorded permits
	Err      error         // the cause, for EventRejected, EventTimedOut, EventCancelled, EventLost, EventOverReleased
	Report   string        // text for a person, mostly with stacks, for EventOverheld, EventLeaked, EventInverted, EventDeadlocked, EventMismatched
}

// An EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events. EventLost, EventRenewed and EventFailedOpen come from fleet
// semaphores only, EventMismatched from host and fleet semaphores only.
const (
	EventQueued       EventKind = iota + 1 // a caller is about to wait
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
	EventOverheld                          // a permit has been held for longer than WarnHold
	EventLost                              // a lease was lost
	EventRenewed                           // leases were renewed
	EventFailedOpen                        // the store is unavailable, and the local limit applies
	EventLeaked                            // a permit was garbage-collected without Release
	EventOverReleased                      // a release of more than was acquired was rejected
	EventInverted                          // two semaphores are acquired in both orders
	EventDeadlocked                        // a deadlock is suspected
	EventMismatched                        // opened with a configuration that differs from the stored one, which applies
)

var kindNames = [...]string{
	EventQueued: "queued", EventAcquired: "acquired", EventReleased: "released", EventTimedOut: "timed out",
	EventCancelled: "cancelled", EventRejected: "rejected", EventResized: "resized", EventDrained: "drained",
	EventClosed: "closed", EventExhausted: "exhausted", EventRecovered: "recovered", EventOverheld: "overheld",
	EventLost: "lost", EventRenewed: "renewed", EventFailedOpen: "failed open", EventLeaked: "leaked",
	EventOverReleased: "over-released", EventInverted: "acquire order inverted", EventDeadlocked: "deadlock suspected",
	EventMismatched: "configuration mismatched",
}

// String returns the kind in words, such as "timed out".
func (k EventKind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}
