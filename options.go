package sema

import (
	"fmt"
	"time"
)

// An Option configures [New]. [Fair], [Unfair], [LIFO], [ParkOversize] and
// [ReclaimLeaks] are options by themselves; the others are made by functions.
type Option interface{ apply(*config) }

type config struct {
	order        order
	name         string
	lineLimit    int
	maxWait      time.Duration
	parkOversize bool
	backing      Backing
	probe        *probe
}

func newConfig(opts []Option) *config {
	c := &config{probe: &probe{level: processLevel()}}
	for _, opt := range opts {
		opt.apply(c)
	}
	return c
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

func (o order) apply(c *config) { c.order = o }

// Name names the semaphore in errors, events and reports, and makes it part of
// the acquire-order audit.
func Name(name string) Option {
	return optionFunc(func(c *config) { c.name = name })
}

// MaxWaiters bounds the queue: a caller who would be one too many gets
// [ErrQueueFull] at once. MaxWaiters(0) lets nobody wait. It panics on a
// negative number.
func MaxWaiters(n int) Option {
	if n < 0 {
		panic(fmt.Sprintf("sema: MaxWaiters(%d): want 0 or more; leave the option out for no bound", n))
	}
	return optionFunc(func(c *config) { c.lineLimit = n + 1 })
}

// MaxWait bounds every wait, besides what the context says: past it a caller
// gets [ErrTimeout]. It panics unless d is positive.
func MaxWait(d time.Duration) Option {
	if d <= 0 {
		panic(fmt.Sprintf("sema: MaxWait(%v): want a positive duration; use TryAcquire not to wait", d))
	}
	return optionFunc(func(c *config) { c.maxWait = d })
}

// Backed has the semaphore's permits rest on something that can be lost: they
// are handed out and given back at the same speed, and [Permit.Lost] and
// [Permit.Err] are those of b. It is for those who share out what they hold
// themselves, as package fleet does with its blocks.
func Backed(b Backing) Option {
	if b == nil {
		panic("sema: Backed(nil): want what the permits rest on")
	}
	return optionFunc(func(c *config) { c.backing = b })
}

// A toggle is an option that is on when given.
type toggle uint8

const (
	// ParkOversize lets a request larger than the capacity wait, aside and in
	// nobody's way, for a Resize that makes room for it, instead of being
	// refused with [ErrTooLarge]. AcquireAll is refused all the same: parked
	// here, it would stand in others' way elsewhere.
	ParkOversize toggle = iota
	// ReclaimLeaks gives the weight of a permit that was garbage-collected
	// without Release back to the semaphore. Leaks are noticed for permits the
	// diagnostics recorded, so it is complete only with Diagnose([Full]).
	ReclaimLeaks
	// CallSites puts the caller's file and line in the events of acquires.
	CallSites
)

func (f toggle) apply(c *config) {
	switch f {
	case ParkOversize:
		c.parkOversize = true
	case ReclaimLeaks:
		c.probe.reclaim = true
	case CallSites:
		c.probe.sites = true
	}
}
