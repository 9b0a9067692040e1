package sematest

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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
	return func(p *plan) { p.reject, p.rejectWith = share, err }
}

// Lose loses a share of the permits, from 0 to 1, within a time after they were granted,
// as an expired lease is lost: Lost is closed, Err returns [sema.ErrLost], and the gate
// may grant the permit to another caller.
func Lose(share float64, within time.Duration) Fault {
	return func(p *plan) { p.lose, p.loseWithin = share, within }
}

// Starve makes a share of the acquires, from 0 to 1, wait until their context ends,
// whatever is free.
func Starve(share float64) Fault { return func(p *plan) { p.starve = share } }

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
	c := f.roll()
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
	c := f.roll()
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

// roll decides the faults of a call.
func (f *Faulty) roll() (c chances) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.plan.delay > 0 {
		c.delay = time.Duration(f.rand.Int64N(int64(f.plan.delay)))
		f.injected.Delayed++
	}
	switch {
	case f.rand.Float64() < f.plan.reject:
		c.err = f.plan.rejectWith
		f.injected.Rejected++
	case f.rand.Float64() < f.plan.starve:
		c.starves = true
		f.injected.Starved++
	case f.rand.Float64() < f.plan.lose:
		c.loseAfter = 1 + time.Duration(f.rand.Int64N(max(1, int64(f.plan.loseWithin))))
	}
	return c
}

// lend returns a permit that may be lost.
func (f *Faulty) lend(p sema.Permit, err error, c chances) (sema.Permit, error) {
	if err != nil || p.Weight() == 0 || c.loseAfter == 0 {
		return p, err
	}
	l := &losable{of: f, permit: p, lost: make(chan struct{})}
	l.timer = time.AfterFunc(c.loseAfter, l.lose)
	return sema.NewPermit(p.Weight(), l), nil
}

// A losable is the lease of a permit that is going to be lost.
type losable struct {
	of     *Faulty
	permit sema.Permit
	timer  *time.Timer
	ended  atomic.Bool // released or lost, whichever came first
	lost   chan struct{}
}

// lose releases the permit behind the holder's back.
func (l *losable) lose() {
	if l.ended.CompareAndSwap(false, true) {
		l.of.mu.Lock()
		l.of.injected.Lost++
		l.of.mu.Unlock()
		close(l.lost)
		l.permit.Release()
	}
}

// Release implements [sema.Lease].
func (l *losable) Release() {
	if l.ended.CompareAndSwap(false, true) {
		l.timer.Stop()
		l.permit.Release()
	}
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
