package sematest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema"
)

// A Fault is a way in which a [Faulty] gate misbehaves.
type Fault func(*plan)

// A plan is what the faults of a gate do.
type plan struct {
	delay                time.Duration
	reject, lose, starve float64
	rejectWith           error
	loseWithin           time.Duration
}

// Delay makes each acquire wait for up to most before it reaches the gate.
func Delay(most time.Duration) Fault { return func(p *plan) { p.delay = most } }

// Reject fails a share of the acquires, from 0 to 1, with an error such as
// [sema.ErrTimeout] or [sema.ErrUnavailable].
func Reject(share float64, err error) Fault {
	mustBeShare("Reject", share)
	return func(p *plan) { p.reject, p.rejectWith = share, err }
}

// Lose loses a share of the permits, from 0 to 1, within a time after they were granted,
// as an expired lease is lost: Lost is closed, Err returns [sema.ErrLost], and the gate
// may grant the permit to another caller.
func Lose(share float64, within time.Duration) Fault {
	mustBeShare("Lose", share)
	return func(p *plan) { p.lose, p.loseWithin = share, within }
}

// Starve makes a share of the acquires, from 0 to 1, wait until their context ends,
// whatever is free.
func Starve(share float64) Fault {
	mustBeShare("Starve", share)
	return func(p *plan) { p.starve = share }
}

func mustBeShare(fault string, share float64) {
	if !(share >= 0 && share <= 1) { // also if it is not a number
		panic(fmt.Sprintf("sematest: %s(%v): want a share from 0 to 1, such as 0.05", fault, share))
	}
}

// A Faulty is a gate that injects faults into another one. It is safe for concurrent
// use.
type Faulty struct {
	gate sema.Gate
	plan plan

	mu       sync.Mutex // guards what follows
	rand     *rand.Rand
	injected Injected
}

// Injected counts the faults of a [Faulty] gate.
type Injected struct{ Delayed, Rejected, Lost, Starved int }

var _ sema.Gate = (*Faulty)(nil)

// Wrap returns a gate that grants what g grants, with faults. The same seed and the same
// order of calls inject the same faults.
func Wrap(g sema.Gate, seed uint64, faults ...Fault) *Faulty {
	f := &Faulty{gate: g, rand: rand.New(rand.NewPCG(seed, 0xfa))}
	for _, fault := range faults {
		fault(&f.plan)
	}
	return f
}

// Name returns the name of the gate, "" if it has none.
func (f *Faulty) Name() string { return nameOf(f.gate) }

// Injected returns how many faults there were.
func (f *Faulty) Injected() Injected {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.injected
}

// Acquire implements [sema.Gate].
func (f *Faulty) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	c := f.roll(true)
	if ctx != nil && c.delay > 0 {
		select {
		case <-ctx.Done():
			return sema.Permit{}, context.Cause(ctx)
		case <-time.After(c.delay):
		}
	}
	if ctx != nil && c.starves {
		<-ctx.Done()
		return sema.Permit{}, context.Cause(ctx)
	}
	if c.err != nil {
		return sema.Permit{}, c.err
	}
	p, err := f.gate.Acquire(ctx, n)
	return f.lend(p, err, c)
}

// TryAcquire implements [sema.Gate]. A try is neither delayed nor starved.
func (f *Faulty) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	c := f.roll(false)
	if c.err != nil {
		return sema.Permit{}, c.err
	}
	p, err := f.gate.TryAcquire(ctx, n)
	return f.lend(p, err, c)
}

// chances are the faults of one call.
type chances struct {
	delay     time.Duration
	err       error
	starves   bool
	loseAfter time.Duration // 0: the permit is not lost
}

// roll decides the faults of a call. One that does not wait is neither delayed nor starved.
func (f *Faulty) roll(waits bool) (c chances) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if waits && f.plan.delay > 0 {
		c.delay = time.Duration(f.rand.Int64N(int64(f.plan.delay)))
		f.injected.Delayed++
	}
	switch {
	case f.rand.Float64() < f.plan.reject:
		c.err = f.plan.rejectWith
		f.injected.Rejected++
	case waits && f.rand.Float64() < f.plan.starve:
		c.starves = true
		f.injected.Starved++
	case f.rand.Float64() < f.plan.lose:
		c.loseAfter = 1 + time.Duration(f.rand.Int64N(max(1, int64(f.plan.loseWithin))))
	}
	return c
}

// lend returns a permit that may be lost. One that is not held, such as that of a rate,
// cannot be lost.
func (f *Faulty) lend(p sema.Permit, err error, c chances) (sema.Permit, error) {
	if err != nil || !p.Held() || c.loseAfter == 0 {
		return p, err
	}
	l := &loss{of: f, lost: make(chan struct{}), parts: []sema.Permit{p}}
	l.timer = time.AfterFunc(c.loseAfter, l.happen)
	return sema.NewPermit(p.Weight(), &losable{l, p}), nil
}

// A loss is what is going to happen to a permit, with all parts that it was split into.
type loss struct {
	of    *Faulty
	timer *time.Timer
	lost  chan struct{}

	mu    sync.Mutex // guards parts until the loss, and the close of lost
	parts []sema.Permit
}

// happen releases the parts that are held behind the back of their holders. None is split
// any more, since the channel is closed.
func (l *loss) happen() {
	l.mu.Lock()
	held := l.heldLocked()
	if held {
		close(l.lost)
	}
	l.mu.Unlock()
	if !held {
		return
	}
	l.of.mu.Lock()
	l.of.injected.Lost++
	l.of.mu.Unlock()
	for _, p := range l.parts {
		p.Release()
	}
}

func (l *loss) heldLocked() bool { return slices.ContainsFunc(l.parts, sema.Permit.Held) }

// A losable is the lease of a permit that is going to be lost, or of a part of it.
type losable struct {
	*loss
	permit sema.Permit
}

// Release implements [sema.Lease].
func (l *losable) Release() {
	l.permit.Release() // inert if it is lost
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.heldLocked() {
		l.timer.Stop()
	}
}

// Split implements [sema.Permit.Split].
func (l *losable) Split(n int64) (first, rest sema.Lease, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Err(); err != nil {
		return nil, nil, err
	}
	a, b, err := l.permit.Split(n)
	if err != nil {
		return nil, nil, err
	}
	l.parts = append(l.parts, a, b)
	return &losable{l.loss, a}, &losable{l.loss, b}, nil
}

// Lost implements [sema.Permit.Lost].
func (l *losable) Lost() <-chan struct{} { return l.lost }

// Err implements [sema.Permit.Err].
func (l *losable) Err() error {
	select {
	case <-l.lost:
		return &sema.Error{Op: "hold", Name: l.of.Name(), Weight: l.permit.Weight(), Err: sema.ErrLost, Detail: "injected"}
	default:
		return nil
	}
}
