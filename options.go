package sema

import (
	"fmt"
	"time"

	"github.com/sema-go/sema/internal/seal"
)

// An Option configures [New] and [NewCounter]. [NewStriped] takes a [SharedOption].
// The orders [Fair], [Unfair] and [LIFO], and [ParkOversize], [ReclaimLeaks] and
// [CallSites] are option values. Functions return the other options.
type Option interface{ apply(*config) }

// A SharedOption has the same meaning at every scope: semaphores of this package,
// those of packages host and fleet, and all other gates accept it.
type SharedOption interface {
	Option
	SharedOption(seal.Key) // seals the interface: only Sema implements it
}

// NoWaiters is the value of MaxWaiters with which no caller may wait. It applies
// to [Settings] and to the configurations of other scopes, where 0 means no bound.
const NoWaiters = -1

// Settings are the values that options set, for implementations of [Gate].
type Settings struct {
	Name       string        // "": no name
	MaxWait    time.Duration // 0: no bound
	MaxWaiters int           // 0: no bound; NoWaiters: no caller may wait
	Order      Order         // default Fair
}

// SettingsOf returns the values that the options set. [NewMonitor] handles the
// options for observers and diagnostics.
func SettingsOf[O Option](opts ...O) Settings { return newConfig(opts).Settings }

type config struct {
	Settings
	parkOversize bool
	backing      Backing
	reports      reports
}

func newConfig[O Option](opts []O) *config {
	c := &config{reports: reports{level: processLevel()}}
	for _, opt := range opts {
		opt.apply(c)
	}
	return c
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

type sharedFunc func(*config)

func (f sharedFunc) apply(c *config)       { f(c) }
func (f sharedFunc) SharedOption(seal.Key) {}

func (o Order) apply(c *config) { c.Order = o }

// Name sets the name of the semaphore in errors, events and reports. A semaphore
// with a name takes part in the acquire-order audit.
func Name(name string) SharedOption {
	return sharedFunc(func(c *config) { c.Name = name })
}

// MaxWaiters bounds the queue to n callers. A caller beyond that gets
// [ErrQueueFull] at once. With MaxWaiters(0) no caller waits. MaxWaiters panics
// if n is negative. Default: no bound.
func MaxWaiters(n int) SharedOption {
	if n < 0 {
		panic(fmt.Sprintf("sema: MaxWaiters(%d): want 0 or more; leave the option out for no bound", n))
	}
	if n == 0 {
		n = NoWaiters
	}
	return sharedFunc(func(c *config) { c.MaxWaiters = n })
}

// MaxWait bounds every wait, in addition to the context: after d the caller gets
// [ErrTimeout]. It panics unless d is positive. Default: no bound.
func MaxWait(d time.Duration) SharedOption {
	if d <= 0 {
		panic(fmt.Sprintf("sema: MaxWait(%v): want a positive duration; use TryAcquire to avoid waiting", d))
	}
	return sharedFunc(func(c *config) { c.MaxWait = d })
}

// Backed sets the [Backing] that the semaphore's permits depend on. If b is lost,
// all of them are: [Permit.Lost] and [Permit.Err] return the results of b. Acquire
// and Release cost the same as without it. Backed is for gates that divide what they
// hold themselves, as package fleet does with its blocks. It panics if b is nil.
func Backed(b Backing) Option {
	if b == nil {
		panic("sema: Backed(nil): want a backing")
	}
	return optionFunc(func(c *config) { c.backing = b })
}

// A toggle is an option whose presence turns it on.
type toggle uint8

const (
	// ParkOversize lets a request larger than the capacity wait for a Resize that
	// makes the capacity large enough, instead of rejecting it with [ErrTooLarge].
	// A parked request delays no other caller. AcquireAll is rejected all the same:
	// parked in one queue, it would delay callers in others.
	ParkOversize toggle = iota
)

func (toggle) apply(c *config) { c.parkOversize = true }

// A sharedToggle is a shared option whose presence turns it on.
type sharedToggle uint8

const (
	// ReclaimLeaks returns to the semaphore the weight of a permit that was
	// garbage-collected without Release. Leaks are detected only for permits that
	// the diagnostics recorded, so it is complete only with Diagnose([DiagnoseFull]).
	ReclaimLeaks sharedToggle = iota
	// CallSites adds the caller's file and line to the events of acquires.
	CallSites
)

func (t sharedToggle) apply(c *config) {
	switch t {
	case ReclaimLeaks:
		c.reports.reclaim = true
	case CallSites:
		c.reports.sites = true
	}
}

// SharedOption implements [SharedOption].
func (sharedToggle) SharedOption(seal.Key) {}
