package sema

import (
	"fmt"
	"time"

	"github.com/sema-go/sema/internal/seal"
)

// An Option configures [New] and [NewCounter]; [NewStriped] takes shared ones. The orders [Fair],
// [Unfair] and [LIFO], and [ParkOversize] are options by themselves; the others are
// made by functions.
type Option interface{ apply(*config) }

// A SharedOption has the same meaning at every scope: it is an option of a
// Semaphore, and of the semaphores of packages host, fleet and of all other gates.
type SharedOption interface {
	Option
	SharedOption(seal.Key)
}

// NoWaiters is the value of MaxWaiters, in [Settings] and in the configurations of
// other scopes, with which no caller may wait. 0 means no bound there.
const NoWaiters = -1

// Settings are what options ask for, for gates of one's own.
type Settings struct {
	Name       string        // "" if it has none
	MaxWait    time.Duration // 0: no bound
	MaxWaiters int           // 0: no bound; NoWaiters: no caller may wait
	Order      Order
}

// SettingsOf returns what the options ask for. Observers and diagnostics are those
// of a [Monitor].
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

// Name names the semaphore in errors, events and reports, and makes it part of
// the acquire-order audit.
func Name(name string) SharedOption {
	return sharedFunc(func(c *config) { c.Name = name })
}

// MaxWaiters bounds the queue: a caller that would be one too many gets
// [ErrQueueFull] at once. With MaxWaiters(0) no caller waits. It panics on a
// negative number. Default: no bound.
func MaxWaiters(n int) SharedOption {
	if n < 0 {
		panic(fmt.Sprintf("sema: MaxWaiters(%d): want 0 or more; leave the option out for no bound", n))
	}
	if n == 0 {
		n = NoWaiters
	}
	return sharedFunc(func(c *config) { c.MaxWaiters = n })
}

// MaxWait bounds every wait, besides the context: after d a caller gets
// [ErrTimeout]. It panics unless d is positive. Default: no bound.
func MaxWait(d time.Duration) SharedOption {
	if d <= 0 {
		panic(fmt.Sprintf("sema: MaxWait(%v): want a positive duration; use TryAcquire not to wait", d))
	}
	return sharedFunc(func(c *config) { c.MaxWait = d })
}

// Backed makes the semaphore's permits rest on something that can be lost: they
// are acquired and released at the same speed, and [Permit.Lost] and [Permit.Err]
// are those of b. It is for gates that share out what they hold themselves, as
// package fleet does with its blocks.
func Backed(b Backing) Option {
	if b == nil {
		panic("sema: Backed(nil): want what the permits rest on")
	}
	return optionFunc(func(c *config) { c.backing = b })
}

// A toggle is an option that is on when given.
type toggle uint8

const (
	// ParkOversize lets a request larger than the capacity wait, delaying no other
	// caller, for a Resize that makes room for it, instead of being rejected with
	// [ErrTooLarge]. AcquireAll is rejected all the same: parked here, it would
	// delay others elsewhere.
	ParkOversize toggle = iota
)

func (toggle) apply(c *config) { c.parkOversize = true }

// A sharedToggle is a shared option that is on when given.
type sharedToggle uint8

const (
	// ReclaimLeaks returns the weight of a permit that was garbage-collected without
	// Release to the semaphore. Leaks are noticed for permits that the diagnostics
	// recorded, so it is complete only with Diagnose([DiagnoseFull]).
	ReclaimLeaks sharedToggle = iota
	// CallSites puts the caller's file and line in the events of acquires.
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
