package sematest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/sema-go/sema"
)

// Gate returns a gate of the program: g, with each operation and each release a step.
func (w *World) Gate(g sema.Gate) sema.Gate { return &stepGate{w, w.label("gate", g), g} }

// label returns the name of what is wrapped, or a number.
func (w *World) label(kind string, wrapped any) string {
	if name := nameOf(wrapped); name != "" {
		return name
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrapped++
	return kind + " " + strconv.Itoa(w.wrapped)
}

// A stepGate is a gate whose operations are steps.
type stepGate struct {
	world *World
	name  string
	gate  sema.Gate
}

// Name returns the name of the gate.
func (g *stepGate) Name() string { return g.name }

// Acquire implements [sema.Gate].
func (g *stepGate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	t := g.world.stepWith(ctx, g.text("acquires", n))
	p, err := g.gate.Acquire(ctx, n)
	g.world.goOn(t, g.text("has waited for", n))
	return g.permit(t, p, err)
}

// TryAcquire implements [sema.Gate].
func (g *stepGate) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	t := g.world.stepWith(ctx, g.text("tries", n))
	p, err := g.gate.TryAcquire(ctx, n)
	return g.permit(t, p, err)
}

func (g *stepGate) text(verb string, n int64) string {
	return verb + " " + strconv.FormatInt(n, 10) + " of " + g.name
}

// permit returns a permit whose release is a step.
func (g *stepGate) permit(by *task, p sema.Permit, err error) (sema.Permit, error) {
	if err != nil || p.Weight() == 0 {
		return p, err
	}
	return sema.NewPermit(p.Weight(), g.world.hold(&stepLease{g.world, g.name, by, p})), nil
}

func (w *World) hold(l *stepLease) *stepLease {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = append(w.held, l)
	return l
}

// A stepLease is a permit of a stepGate.
type stepLease struct {
	world  *World
	gate   string
	by     *task
	permit sema.Permit
}

// drop removes the lease from what is held.
func (l *stepLease) drop() {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	l.world.held = slices.DeleteFunc(l.world.held, func(other *stepLease) bool { return other == l })
}

// Release implements [sema.Lease].
func (l *stepLease) Release() {
	l.drop()
	l.permit.Release()
	l.world.step(l.by, "has released "+strconv.FormatInt(l.permit.Weight(), 10)+" of "+l.gate)
}

// Split implements [sema.Permit.Split].
func (l *stepLease) Split(n int64) (first, rest sema.Lease, err error) {
	a, b, err := l.permit.Split(n)
	if err != nil {
		return nil, nil, err
	}
	l.drop()
	return l.world.hold(&stepLease{l.world, l.gate, l.by, a}), l.world.hold(&stepLease{l.world, l.gate, l.by, b}), nil
}

// Lost implements [sema.Permit.Lost].
func (l *stepLease) Lost() <-chan struct{} { return l.permit.Lost() }

// Err implements [sema.Permit.Err].
func (l *stepLease) Err() error { return l.permit.Err() }

// A Counter is a [sema.Counter] whose operations are steps.
type Counter struct {
	world   *World
	name    string
	counter *sema.Counter
}

// Counter returns a counter of the program.
func (w *World) Counter(c *sema.Counter) *Counter { return &Counter{w, w.label("counter", c), c} }

// Wait calls [sema.Counter.Wait].
func (c *Counter) Wait(ctx context.Context, n int64) error {
	t := c.world.stepWith(ctx, fmt.Sprintf("waits for %d of %s", n, c.name))
	err := c.counter.Wait(ctx, n)
	c.world.goOn(t, fmt.Sprintf("has waited for %d of %s", n, c.name))
	return err
}

// TryWait calls [sema.Counter.TryWait].
func (c *Counter) TryWait(n int64) bool {
	c.world.step(nil, fmt.Sprintf("tries to take %d of %s", n, c.name))
	return c.counter.TryWait(n)
}

// Post calls [sema.Counter.Post].
func (c *Counter) Post(n int64) error {
	err := c.counter.Post(n)
	c.world.step(nil, fmt.Sprintf("has posted %d to %s", n, c.name))
	return err
}

// Value returns [sema.Counter.Value]. It is not a step.
func (c *Counter) Value() int64 { return c.counter.Value() }

// Mutex returns a mutex of the program, in place of a sync.Mutex. Without a name it gets a
// number.
func (w *World) Mutex(name string) sync.Locker {
	if name == "" {
		name = w.label("mutex", nil)
	}
	return &mutex{w, name, make(chan struct{}, 1)}
}

// A mutex is a lock whose operations are steps: a channel of one, for which synctest
// sees that a goroutine waits.
type mutex struct {
	world *World
	name  string
	full  chan struct{}
}

// Lock implements [sync.Locker].
func (m *mutex) Lock() {
	t := m.world.step(nil, "locks "+m.name)
	select {
	case m.full <- struct{}{}:
	case <-m.world.ctx.Done(): // the schedule is over, and the next step ends the goroutine
	}
	m.world.goOn(t, "has waited for "+m.name)
}

// Unlock implements [sync.Locker].
func (m *mutex) Unlock() {
	select {
	case <-m.full:
	default:
		panic("sematest: unlock of unlocked mutex " + m.name)
	}
	m.world.step(nil, "has unlocked "+m.name)
}
