package sema_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sema-go/sema"
)

// The model specifies what a semaphore must do, in simple code. Each operation is
// applied to the model and to a real semaphore. When all goroutines are blocked or
// have ended, both must agree on everything that is visible.

// A lifecycleGate has the methods that every semaphore of a process has.
type lifecycleGate interface {
	sema.Gate
	Resize(capacity int64)
	Drain(ctx context.Context) error
	Resume()
	WaitIdle(ctx context.Context) error
	Close() error
	Stats() sema.Stats
	Name() string
	String() string
}

var _, _ lifecycleGate = (*sema.Semaphore)(nil), (*sema.Striped)(nil)

// A call is an acquire in the model: it waits, has ended with err, or holds permits.
type call struct {
	n       int64
	since   time.Duration // when it was queued
	waiting bool
	err     error // the sentinel, once ended without a permit
	held    bool
}

// modelOptions are the options of a semaphore and its model.
type modelOptions struct {
	capacity   int64
	order      sema.Option
	park       bool
	maxWait    time.Duration // 0: no bound
	maxWaiters int           // 0: no bound
	observed   bool
	striped    bool // without order and park
}

func (o modelOptions) new() (lifecycleGate, *model) {
	var shared []sema.SharedOption
	if o.maxWait > 0 {
		shared = append(shared, sema.MaxWait(o.maxWait))
	}
	if o.maxWaiters > 0 {
		shared = append(shared, sema.MaxWaiters(o.maxWaiters))
	}
	if o.observed {
		shared = append(shared, sema.Observe(sema.ObserverFunc(func(sema.Event) {})))
	}
	if o.striped {
		return sema.NewStriped(o.capacity, shared...), &model{modelOptions: o}
	}
	opts := []sema.Option{o.order}
	if o.park {
		opts = append(opts, sema.ParkOversize)
	}
	for _, opt := range shared {
		opts = append(opts, opt)
	}
	return sema.New(o.capacity, opts...), &model{modelOptions: o}
}

// can reports whether the semaphore has an operation: a Striped has only the methods of
// lifecycleGate.
func (o modelOptions) can(k opKind) bool {
	return !o.striped || k != opTryAll && k != opRequest && k != opForget
}

// A realCall is the same call on the semaphore under test.
type realCall struct {
	cancel context.CancelFunc
	ticket *sema.Ticket
	result chan result // of an acquire
	done   bool
	permit sema.Permit
	err    error
}

func (r *realCall) poll() {
	var ready <-chan struct{}
	if r.ticket != nil && !r.done {
		ready = r.ticket.Ready()
	}
	select {
	case <-ready:
		r.permit, r.err = r.ticket.Permit()
		r.done = true
	case ended := <-r.result:
		r.permit, r.err, r.done = ended.permit, ended.err, true
	default:
	}
}

var errCancelled = errors.New("cancelled by the test")

// runModel applies ops to both and returns the first difference. Between two operations
// some microseconds pass, so that no two waits end at the same time. No wait lasts for
// the millisecond after which Unfair serves in order.
func runModel(t *testing.T, opts modelOptions, ops []op) (failure error) {
	synctest.Test(t, func(t *testing.T) {
		s, m := opts.new()
		var real []*realCall
		defer func() {
			for _, r := range real {
				if r.cancel != nil {
					r.cancel()
				}
				if r.ticket != nil {
					r.ticket.Cancel()
				}
			}
		}()
		stopDrains, cancelDrains := context.WithCancel(t.Context())
		defer cancelDrains()
		for i, o := range ops {
			passed := time.Duration(1+o.B%8) * time.Microsecond
			time.Sleep(passed)
			m.advance(passed)
			synctest.Wait()
			for _, r := range real {
				r.poll()
			}
			if opts.can(o.Kind) {
				real = apply(t, s, m, real, o, stopDrains)
			}
			synctest.Wait()
			if err := compare(s, m, real); err != nil {
				failure = fmt.Errorf("after op %d of %v: %w", i, ops[:i+1], err)
				return
			}
		}
	})
	return failure
}

// apply applies one operation to both.
func apply(t *testing.T, gate lifecycleGate, m *model, real []*realCall, o op, stopDrains context.Context) []*realCall {
	weight := int64(o.A % 6)
	if m.striped {
		weight = []int64{1, 1, 1, 1, 1, 1, 0, 2}[o.A%8]
	}
	s, _ := gate.(*sema.Semaphore)
	pick := func() (int, bool) {
		if len(real) == 0 {
			return 0, false
		}
		return int(o.A) % len(real), true
	}
	switch o.Kind {
	case opAcquire:
		ctx, cancel := context.WithCancelCause(t.Context())
		r := &realCall{cancel: func() { cancel(errCancelled) }, result: make(chan result, 1)}
		real = append(real, r)
		go func() {
			p, err := gate.Acquire(ctx, weight)
			r.result <- result{p, err}
		}()
		m.acquire(weight, true)
	case opTry:
		p, err := gate.TryAcquire(t.Context(), weight)
		real = append(real, &realCall{done: true, permit: p, err: err})
		m.acquire(weight, false)
	case opTryAll:
		p, err := s.TryAcquireFree(t.Context())
		real = append(real, &realCall{done: true, permit: p, err: err})
		n := m.free()
		if n == 0 || m.mustQueue() {
			c := m.acquire(0, false)
			if c.err == nil {
				m.counts.Rejected++
				c.err = sema.ErrFull
			}
			break
		}
		m.acquire(n, false)
	case opRequest:
		real = append(real, &realCall{ticket: s.Request(weight)})
		m.acquire(weight, true)
	case opRelease, opReleaseTwice:
		if i, ok := pick(); ok && real[i].done {
			real[i].permit.Release()
			if o.Kind == opReleaseTwice {
				real[i].permit.Release()
			}
			m.release(m.calls[i])
		}
	case opCancel:
		if i, ok := pick(); ok && (real[i].cancel != nil || real[i].ticket != nil) {
			waiting := m.calls[i].waiting
			if waiting {
				m.counts.Cancelled++
				m.end(m.calls[i], context.Canceled)
			}
			if real[i].ticket != nil {
				real[i].ticket.Cancel()
			} else {
				real[i].cancel()
				if waiting {
					m.calls[i].err = errCancelled
				}
			}
			m.settle()
		}
	case opSplit:
		if i, ok := pick(); ok && real[i].done {
			k := int64(o.B % 6)
			first, rest, err := real[i].permit.Split(k)
			c := m.calls[i]
			if can := c.held && k > 0 && k < c.n; can != (err == nil) {
				t.Errorf("split %d off %d, held %v: %v", k, c.n, c.held, err)
			}
			if err == nil {
				c.held = false
				m.calls = append(m.calls, &call{n: k, held: true}, &call{n: c.n - k, held: true})
				real = append(real, &realCall{done: true, permit: first}, &realCall{done: true, permit: rest})
			}
		}
	case opForget:
		if i, ok := pick(); ok && real[i].done {
			s.Forget(real[i].permit)
			if c := m.calls[i]; c.held {
				c.held = false
				m.inUse -= c.n
				m.capacity = max(0, m.capacity-c.n)
				m.settle()
			}
		}
	case opResize:
		m.capacity = int64(o.A % 8)
		gate.Resize(m.capacity)
		m.settle()
	case opDrain:
		go gate.Drain(stopDrains)
		m.draining = !m.closed
		m.settle()
	case opResume:
		gate.Resume()
		m.draining = false
	case opClose:
		gate.Close()
		m.closed, m.draining = true, false
		m.settle()
	case opWaitIdle: // has no visible effect
		go gate.WaitIdle(stopDrains)
	}
	return real
}

func compare(s lifecycleGate, m *model, real []*realCall) error {
	st := s.Stats()
	want := sema.Stats{
		Counts:   m.counts,
		Capacity: m.capacity, InUse: m.inUse, Free: m.free(), Debt: max(0, m.inUse-m.capacity),
		Waiters: len(m.queue), Draining: m.draining, Closed: m.closed,
	}
	m.longest = max(m.longest, len(m.queue))
	if err := compareStats(st, want, m.longest); err != nil {
		return err
	}
	for i, r := range real {
		r.poll()
		c := m.calls[i]
		switch {
		case c.waiting == r.done:
			return fmt.Errorf("call %d for %d: ended %v, want waiting %v", i, c.n, r.done, c.waiting)
		case !errors.Is(r.err, c.err):
			return fmt.Errorf("call %d for %d: error %v, want %v", i, c.n, r.err, c.err)
		case r.permit.Held() != c.held:
			return fmt.Errorf("call %d for %d: held %v, want %v", i, c.n, r.permit.Held(), c.held)
		}
	}
	return nil
}

// compareStats compares all figures. WaitTime is exact if the queue was never long, and
// accurate to a seventh otherwise, see [sema.Counts].
func compareStats(got, want sema.Stats, longest int) error {
	const long = 32
	if off := (got.WaitTime - want.WaitTime).Abs(); longest >= long && off <= want.WaitTime/7 {
		got.WaitTime = want.WaitTime
	}
	if got != want {
		return fmt.Errorf("stats %+v, want %+v", got, want)
	}
	return nil
}

func opGenerator() *rapid.Generator[op] {
	// Acquires and releases create most states, so they are drawn most often.
	kinds := []opKind{opAcquire, opAcquire, opAcquire, opRelease, opRelease, opRelease, opCancel, opCancel, opResize, opResize}
	for k := range opKinds {
		kinds = append(kinds, k)
	}
	return rapid.Custom(func(t *rapid.T) op {
		return op{rapid.SampledFrom(kinds).Draw(t, "kind"), rapid.Uint8Max(40).Draw(t, "a"), rapid.Uint8Max(10).Draw(t, "b")}
	})
}

func TestSemaphore_BehavesLikeItsModel(t *testing.T) {
	for name, order := range map[string]sema.Option{"Fair": sema.Fair, "Unfair": sema.Unfair, "LIFO": sema.LIFO} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				opts := modelOptions{
					capacity:   rapid.Int64Range(0, 7).Draw(rt, "capacity"),
					order:      order,
					park:       rapid.Bool().Draw(rt, "park"),
					maxWait:    rapid.SampledFrom([]time.Duration{0, 20 * time.Microsecond}).Draw(rt, "maxWait"),
					maxWaiters: rapid.SampledFrom([]int{0, 3}).Draw(rt, "maxWaiters"),
				}
				ops := rapid.SliceOfN(opGenerator(), 30, 80).Draw(rt, "ops")
				if err := runModel(t, opts, ops); err != nil {
					rt.Fatal(err)
				}
			})
		})
	}
}

// TestStriped_BehavesLikeTheModelOfASemaphore uses the model of a fair semaphore: without
// racing calls, a Striped serves in order of arrival.
func TestStriped_BehavesLikeTheModelOfASemaphore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		opts := modelOptions{
			striped:    true,
			order:      sema.Fair,
			capacity:   rapid.Int64Range(0, 7).Draw(rt, "capacity"),
			maxWait:    rapid.SampledFrom([]time.Duration{0, 20 * time.Microsecond}).Draw(rt, "maxWait"),
			maxWaiters: rapid.SampledFrom([]int{0, 3}).Draw(rt, "maxWaiters"),
			observed:   rapid.Bool().Draw(rt, "observed"),
		}
		ops := rapid.SliceOfN(opGenerator(), 30, 80).Draw(rt, "ops")
		if err := runModel(t, opts, ops); err != nil {
			rt.Fatal(err)
		}
	})
}

// FuzzOperations reads the operations of the same model from bytes, three for each.
func FuzzOperations(f *testing.F) {
	f.Add(uint8(3), uint8(0), []byte{0, 2, 0, 0, 3, 0, 4, 0, 0, 6, 1, 0})
	f.Add(uint8(5), uint8(1), []byte{0, 5, 0, 9, 2, 0, 0, 1, 0, 4, 0, 0, 9, 7, 0})
	f.Add(uint8(7), uint8(5), []byte{0, 3, 0, 3, 4, 0, 7, 0, 1, 8, 0, 0, 10, 0, 0, 11, 0, 0, 12, 0, 0})
	f.Add(uint8(4), uint8(32), []byte{0, 1, 0, 0, 1, 0, 9, 1, 0, 4, 0, 0, 10, 0, 0, 11, 0, 0, 9, 5, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, capacity, mode uint8, data []byte) {
		order := []sema.Option{sema.Fair, sema.Unfair, sema.LIFO}[mode%3]
		var ops []op
		for ; len(data) >= 3 && len(ops) < 100; data = data[3:] {
			ops = append(ops, op{opKind(data[0]) % opKinds, data[1], data[2]})
		}
		opts := modelOptions{capacity: int64(capacity % 8), order: order, park: mode&4 != 0}
		if mode&8 != 0 {
			opts.maxWait = 20 * time.Microsecond
		}
		if mode&16 != 0 {
			opts.maxWaiters = 3
		}
		if mode&32 != 0 {
			opts.striped, opts.order, opts.park = true, sema.Fair, false
		}
		if err := runModel(t, opts, ops); err != nil {
			t.Fatal(err)
		}
	})
}
