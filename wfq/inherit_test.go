package wfq_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// invert runs the classic priority inversion, and returns for how long the caller of the
// high tier waits. A caller of the low tier holds the lock, and waits for a worker behind
// ten of the tier in between, of 100 ms each. carry states whether its context carries the lock.
func invert(t *testing.T, lock, workers *wfq.Queue, carry bool) time.Duration {
	t.Helper()
	for _, q := range []*wfq.Queue{lock, workers} {
		q.Set("high", wfq.Share{Tier: 2})
		q.Set("medium", wfq.Share{Tier: 1})
		q.Set("low", wfq.Share{})
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	work := func(ctx context.Context, class string) {
		p, err := workers.Class(class).Acquire(ctx, 1)
		if err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
		p.Release()
	}
	wg.Go(func() { work(ctx, "medium") })
	synctest.Wait()
	wg.Go(func() {
		locked := mustAcquire(t, lock.Class("low"), 1)
		defer locked.Release()
		inner := ctx
		if carry {
			var cancel context.CancelFunc
			inner, cancel = locked.Context(ctx)
			defer cancel()
		}
		work(inner, "low")
	})
	synctest.Wait()
	for range 10 {
		wg.Go(func() { work(ctx, "medium") })
	}
	synctest.Wait()
	start := time.Now()
	p, err := lock.Class("high").Acquire(ctx, 1)
	if err != nil {
		t.Error(err)
	}
	p.Release()
	return time.Since(start)
}

func TestQueue_InheritsTiers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		opts  []wfq.Option
		carry bool
		want  time.Duration
	}{
		{"without: the high tier waits for all of the medium one", nil, false, 1200 * time.Millisecond},
		{"with: the low tier is served next", nil, true, 200 * time.Millisecond},
		{"with a ceiling", []wfq.Option{wfq.Ceiling(2)}, true, 200 * time.Millisecond},
		{"with a ceiling that is too low", []wfq.Option{wfq.Ceiling(0)}, true, 200 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lock := wfq.New(1, c.opts...)
				if waited := invert(t, lock, wfq.New(1), c.carry); waited != c.want {
					t.Errorf("the high tier waited %v, want %v", waited, c.want)
				}
				if n := lock.Dependents(); n != 0 {
					t.Errorf("%d dependents remain", n)
				}
			})
		})
	}
	t.Run("through a gate in front of another", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			if waited := invert(t, wfq.Over(sema.New(1), 1), wfq.New(1), true); waited != 200*time.Millisecond {
				t.Errorf("the high tier waited %v, want 200 ms", waited)
			}
		})
	})
}

// TestQueue_InheritedTierEnds checks that only the caller that others depend on is raised,
// and not the class for good.
func TestQueue_InheritedTierEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lock, workers := wfq.New(1), wfq.New(1)
		lock.Set("high", wfq.Share{Tier: 2})
		workers.Set("medium", wfq.Share{Tier: 1})
		locked := mustAcquire(t, lock.Class("low"), 1)
		inner, cancel := locked.Context(ctx)
		defer cancel()
		p := mustAcquire(t, workers, 1)
		var l log
		l.start(t, workers.Class("low"), "low", 1, time.Second)
		l.start(t, workers.Class("medium"), "medium", 1, time.Second)
		l.start(t, gateIn{inner, workers.Class("low")}, "low with the lock", 1, time.Second)
		l.start(t, lock.Class("high"), "high", 1, time.Second)
		p.Release()
		time.Sleep(time.Minute)
		locked.Release()
		l.want(t, "low with the lock", "medium", "low", "high")
		if err := workers.CheckInvariants(); err != nil {
			t.Error(err)
		}
	})
}

// TestQueue_InheritsAfterChanges checks that a tier is inherited however the classes and
// gates have changed before.
func TestQueue_InheritsAfterChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lock    func() (front, lock *wfq.Queue)
		prepare func(lock, workers *wfq.Queue) // after all wait
		lower   bool
	}{
		"the class of the waiter is raised": {prepare: func(lock, _ *wfq.Queue) { lock.Set("high", wfq.Share{Tier: 2}) }},
		"the class of the holder was lowered": {lower: true, prepare: func(lock, workers *wfq.Queue) {
			lock.Set("high", wfq.Share{Tier: 2})
		}},
		"the gate is in front of the lock": {
			lock: func() (front, lock *wfq.Queue) {
				lock = wfq.New(1)
				return wfq.Over(lock.Class("low"), 1), lock
			},
			prepare: func(lock, _ *wfq.Queue) { lock.Set("high", wfq.Share{Tier: 2}) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lock := wfq.New(1)
				front := lock
				if c.lock != nil {
					front, lock = c.lock()
				}
				workers := wfq.New(1)
				workers.Set("medium", wfq.Share{Tier: 1})
				if c.lower {
					workers.Set("low", wfq.Share{Tier: 5})
				}
				locked := mustAcquire(t, front.Class("low"), 1)
				inner, cancel := locked.Context(ctx)
				defer cancel()
				p := mustAcquire(t, workers, 1)
				var l log
				l.start(t, gateIn{inner, workers.Class("low")}, "low with the lock", 1, time.Second)
				if c.lower {
					workers.Set("low", wfq.Share{})
				}
				l.start(t, workers.Class("medium"), "medium", 1, time.Second)
				l.start(t, lock.Class("high"), "high", 1, time.Second)
				c.prepare(lock, workers)
				p.Release()
				time.Sleep(time.Minute)
				locked.Release()
				l.want(t, "low with the lock", "medium", "high")
			})
		})
	}
}

// TestCeiling_RaisesBeforeAnyoneWaits checks that a ceiling raises holders although no
// caller of a higher tier waits for them.
func TestCeiling_RaisesBeforeAnyoneWaits(t *testing.T) {
	t.Parallel()
	for tier, want := range map[int][]string{1: {"holder", "medium"}, -1: {"medium", "holder"}} {
		synctest.Test(t, func(t *testing.T) {
			lock, workers := wfq.New(1, wfq.Ceiling(tier)), wfq.New(1)
			workers.Set("low", wfq.Share{Tier: -2})
			locked := mustAcquire(t, lock.Class("low"), 1)
			defer locked.Release()
			inner, cancel := locked.Context(ctx)
			defer cancel()
			p := mustAcquire(t, workers, 1)
			var l log
			l.start(t, workers.Class("medium"), "medium", 1, time.Second)
			l.start(t, gateIn{inner, workers.Class("low")}, "holder", 1, time.Second)
			p.Release()
			l.want(t, want...)
		})
	}
}

// A gateIn acquires with its own context.
type gateIn struct {
	ctx context.Context
	sema.Gate
}

func (g gateIn) Acquire(_ context.Context, n int64) (sema.Permit, error) {
	return g.Gate.Acquire(g.ctx, n)
}

// TestQueue_InheritsThroughAChain checks that a tier passes from queue to queue, that it
// reaches a waiter whichever comes first, and that a cycle ends.
func TestQueue_InheritsThroughAChain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var queues [3]*wfq.Queue
		for i := range queues {
			queues[i] = wfq.New(1)
			queues[i].Set("high", wfq.Share{Tier: 3})
			queues[i].Set("medium", wfq.Share{Tier: 1})
		}
		// One caller holds 0 and waits for 1, whose holder waits for 2.
		holds := func(q *wfq.Queue) (sema.Permit, context.Context, context.CancelFunc) {
			p := mustAcquire(t, q.Class("low"), 1)
			inner, cancel := p.Context(ctx)
			return p, inner, cancel
		}
		p0, in0, cancel0 := holds(queues[0])
		defer cancel0()
		p1, in1, cancel1 := holds(queues[1])
		defer cancel1()
		p2 := mustAcquire(t, queues[2].Class("low"), 1)
		var l log
		for _, q := range queues[1:] {
			l.start(t, q.Class("medium"), "medium", 1, time.Minute)
		}
		l.start(t, gateIn{in1, queues[2].Class("low")}, "low at 2", 1, time.Second)
		l.start(t, gateIn{in0, queues[1].Class("low")}, "low at 1", 1, time.Second)
		l.start(t, queues[0].Class("high"), "high", 1, time.Second)
		// A deadlock would be a cycle: nothing may loop.
		l.start(t, gateIn{in1, queues[0].Class("low")}, "low at 0", 1, time.Second)
		p2.Release()
		time.Sleep(2 * time.Second)
		p1.Release()
		time.Sleep(2 * time.Second)
		p0.Release()
		l.want(t, "low at 2", "medium", "low at 1", "medium", "high", "low at 0")
	})
}
