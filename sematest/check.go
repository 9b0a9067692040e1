package sematest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// Traits are what a gate promises beyond the contract of every [sema.Gate].
type Traits struct {
	// FIFO: waiters are served in order of arrival, and no try overtakes them.
	FIFO bool
	// Weights: one permit may have any weight up to the capacity. Otherwise more than
	// one is ErrTooLarge.
	Weights bool
	// Split: permits can be split.
	Split bool
	// Binary: the gate has one permit, whatever capacity the suite asks for, as a mutex.
	Binary bool
	// ByTime: permits return by time and not by their release, as those of a rate.
	ByTime bool
	// RealTime: the gate cannot run in a testing/synctest bubble, since it uses I/O or
	// other processes. It must have a method Stats that returns [sema.Stats], by which the
	// suite sees that a caller waits.
	RealTime bool
}

// Check runs the conformance suite of gates: what every [sema.Gate] promises, and the
// traits of this one. The function creates a gate with a capacity, all of it free, and
// releases what it needs at the end of the test that it gets. Each subtest creates a gate
// of its own.
func Check(t *testing.T, traits Traits, create func(t *testing.T, capacity int64) sema.Gate) {
	t.Helper()
	for _, c := range checks {
		if !c.applies(traits) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if traits.RealTime {
				(&checked{T: t, traits: traits, create: create, settle: pollWaiters}).run(c.run)
				return
			}
			synctest.Test(t, func(t *testing.T) {
				(&checked{T: t, traits: traits, create: create, settle: func(*checked, int) { synctest.Wait() }}).run(c.run)
			})
		})
	}
}

// A check is one test of the suite.
type check struct {
	name    string
	applies func(Traits) bool
	run     func(*checked)
}

// checked is a gate under test, with helpers that end the test if the gate fails.
type checked struct {
	*testing.T
	traits Traits
	create func(*testing.T, int64) sema.Gate
	gate   sema.Gate
	size   int64 // capacity of gate
	settle func(c *checked, waiters int)
	held   []sema.Permit // released at the end of the test, if they are not before
}

// run runs a check and releases what it holds.
func (c *checked) run(check func(*checked)) {
	defer func() {
		for _, p := range c.held {
			p.Release()
		}
	}()
	check(c)
}

func always(Traits) bool        { return true }
func returns(t Traits) bool     { return !t.ByTime }
func isFIFO(t Traits) bool      { return t.FIFO && !t.ByTime }
func hasWeights(t Traits) bool  { return t.Weights && !t.Binary && !t.ByTime }
func fifoWeights(t Traits) bool { return isFIFO(t) && hasWeights(t) }
func splits(t Traits) bool      { return t.Split && hasWeights(t) }

// hangs bounds each wait: only a gate that does not serve a waiter reaches it.
const hangs = time.Minute

// pollWaiters waits until callers are queued at a gate in real time.
func pollWaiters(c *checked, waiters int) {
	c.Helper()
	stats, ok := c.gate.(statistics)
	if !ok {
		c.Fatalf("%T has no method Stats() sema.Stats, which RealTime needs", c.gate)
	}
	for end := time.Now().Add(hangs); stats.Stats().Waiters != waiters; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("%d callers wait, want %d", stats.Stats().Waiters, waiters)
		}
	}
}

// open creates the gate of the test.
func (c *checked) open(capacity int64) *checked {
	if c.traits.Binary {
		capacity = 1
	}
	c.gate, c.size = c.create(c.T, capacity), capacity
	return c
}

// acquire acquires permits that are free.
func (c *checked) acquire(n int64) sema.Permit {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	p, err := c.gate.Acquire(ctx, n)
	if err != nil {
		c.Fatalf("acquire %d: %v, want a permit: it is free", n, err)
	}
	if p.Weight() != n {
		c.Fatalf("acquired a permit of weight %d, want %d", p.Weight(), n)
	}
	c.held = append(c.held, p)
	return p
}

// wantTry fails unless a try returns an error, nil for a permit, which it returns.
func (c *checked) wantTry(n int64, want error) sema.Permit {
	c.Helper()
	p, err := c.gate.TryAcquire(context.Background(), n)
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		c.Fatalf("try %d: error %v, want %v", n, err, want)
	}
	if err != nil && p.Weight() != 0 {
		c.Fatalf("try %d: error %v with a permit of weight %d", n, err, p.Weight())
	}
	c.held = append(c.held, p)
	return p
}

// takeAll takes the whole capacity, one by one, and wants no more to be free.
func (c *checked) takeAll() {
	c.Helper()
	for range c.size {
		c.wantTry(1, nil)
	}
	c.wantTry(1, sema.ErrFull)
}

// A waiting is an acquire in another goroutine.
type waiting struct {
	c      *checked
	n      int64
	ended  chan struct{}
	permit sema.Permit
	err    error
}

// wait starts an acquire, and returns when waiters callers are queued.
func (c *checked) wait(ctx context.Context, n int64, waiters int) *waiting {
	c.Helper()
	w := &waiting{c: c, n: n, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		w.permit, w.err = c.gate.Acquire(ctx, n)
	}()
	c.settle(c, waiters)
	return w
}

// result waits for the end of the acquire.
func (w *waiting) result() (sema.Permit, error) {
	w.c.Helper()
	select {
	case <-w.ended:
	case <-time.After(hangs):
		w.c.Fatalf("an acquire of %d did not return", w.n)
	}
	return w.permit, w.err
}

// granted waits for the permit.
func (w *waiting) granted() sema.Permit {
	w.c.Helper()
	p, err := w.result()
	if err != nil {
		w.c.Fatalf("a waiting acquire of %d: %v, want a permit", w.n, err)
	}
	return p
}

// wantWaiting fails if the acquire has returned.
func (w *waiting) wantWaiting(waiters int) {
	w.c.Helper()
	w.c.settle(w.c, waiters)
	select {
	case <-w.ended:
		w.c.Fatalf("an acquire of %d returned (error %v), want it to wait", w.n, w.err)
	default:
	}
}
