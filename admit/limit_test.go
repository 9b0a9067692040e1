package admit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
)

// A dependency is a simulated service: it processes slots requests at once, each in work,
// and the others wait inside it.
type dependency struct {
	slots int64
	work  time.Duration
}

// duration returns how long a request takes while n are in flight.
func (d dependency) duration(n int64) time.Duration {
	if n <= d.slots {
		return d.work
	}
	return d.work * time.Duration(n) / time.Duration(d.slots)
}

// settle runs a limit for some windows against a dependency that is always asked for as much
// as the limit allows, and returns the limit that results.
func settle(l admit.Limit, d dependency, limit int64, windows int) int64 {
	for range windows {
		took := d.duration(limit)
		limit = l.Next(admit.Window{Limit: limit, InFlight: limit, Calls: 100, Min: took, Mean: took})
	}
	return limit
}

func TestLimit_FindsWhatTheDependencyBears(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]admit.Limit{
		"vegas": &admit.Vegas{Max: 500}, "gradient": &admit.Gradient{Max: 500},
		"aimd": &admit.AIMD{Max: 500, Timeout: 15 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			d := dependency{slots: 50, work: 10 * time.Millisecond}
			// Four minutes at the limit, and not in a probe: it must not drift.
			if got := settle(l, d, 10, 2395); got < 50 || got > 110 {
				t.Errorf("the limit is %d for a dependency of 50", got)
			}
		})
	}
}

func TestVegas_IsNotMisledByDurationsThatVary(t *testing.T) {
	t.Parallel()
	l, d, limit := &admit.Vegas{Max: 500}, dependency{slots: 50, work: 10 * time.Millisecond}, int64(50)
	for range 995 { // not in a probe
		took := d.duration(limit)
		limit = l.Next(admit.Window{Limit: limit, InFlight: limit, Calls: 100, Min: took / 5, Mean: took})
	}
	if limit < 50 {
		t.Errorf("the limit is %d for a dependency of 50", limit)
	}
}

func TestLimit_FollowsASlowdownAndRecovers(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]admit.Limit{"vegas": &admit.Vegas{Max: 500}, "gradient": &admit.Gradient{Max: 500}} {
		t.Run(name, func(t *testing.T) {
			fast := dependency{slots: 50, work: 10 * time.Millisecond}
			before := settle(l, fast, 50, 100)
			slow := settle(l, dependency{slots: 12, work: 10 * time.Millisecond}, before, 100)
			if slow >= before {
				t.Errorf("%d after a slowdown, %d before", slow, before)
			}
			if after := settle(l, fast, slow, 30); after < 50 { // 30 windows are 3 seconds
				t.Errorf("%d three seconds after the end of the slowdown", after)
			}
		})
	}
}

func TestLimit_HonoursDropsAndBounds(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]admit.Limit{
		"aimd": &admit.AIMD{Min: 5, Max: 20}, "vegas": &admit.Vegas{Min: 5, Max: 20}, "gradient": &admit.Gradient{Min: 5, Max: 20},
	} {
		t.Run(name, func(t *testing.T) {
			good := admit.Window{Limit: 10, InFlight: 10, Calls: 10, Min: time.Millisecond, Mean: time.Millisecond}
			bad := good
			bad.Dropped = 1
			if got := l.Next(bad); got >= 10 {
				t.Errorf("%d after a drop", got)
			}
			for range 100 {
				good.Limit = l.Next(good)
				good.InFlight = good.Limit
			}
			if good.Limit != 20 {
				t.Errorf("rises to %d, want 20", good.Limit)
			}
			idle := good
			idle.InFlight = 1
			if got := l.Next(idle); got != 20 {
				t.Errorf("%d after an idle window, want no change", got)
			}
			for range 100 {
				bad.Limit = l.Next(bad)
			}
			if bad.Limit != 5 {
				t.Errorf("falls to %d, want 5", bad.Limit)
			}
		})
	}
}

func TestAdapter_ResizesASemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(10)
		a := admit.Adapt(s, &admit.AIMD{Max: 100})
		p, err := s.Acquire(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		for range 30 {
			a.Sample(admit.OK, time.Millisecond)
			time.Sleep(10 * time.Millisecond)
		}
		if got := s.Stats().Capacity; got != 12 || a.Limit() != got {
			t.Errorf("capacity %d after two windows at the limit, want 12", got)
		}
		for range 12 {
			a.Sample(admit.Dropped, time.Millisecond)
			time.Sleep(10 * time.Millisecond)
		}
		if got := s.Stats().Capacity; got != 11 {
			t.Errorf("capacity %d after drops, want 11", got)
		}
	})
}

func TestAdapter_DryRunChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(10)
		var proposed []int64
		a := admit.Adapt(s, admit.DryRun(&admit.AIMD{}, func(_, n int64) { proposed = append(proposed, n) }))
		for range 30 {
			a.Sample(admit.Dropped, time.Millisecond)
			time.Sleep(10 * time.Millisecond)
		}
		if s.Stats().Capacity != 10 || len(proposed) != 2 || proposed[0] != 9 {
			t.Errorf("capacity %d, proposed %v", s.Stats().Capacity, proposed)
		}
	})
}

// A distant is a semaphore whose Resize does I/O, as that of a fleet.
type distant struct {
	mu    sync.Mutex
	sizes []int64
	err   error
}

func (d *distant) Resize(_ context.Context, n int64) error {
	time.Sleep(time.Second)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.err; err != nil {
		d.err = nil
		return err
	}
	d.sizes = append(d.sizes, n)
	return nil
}

func (d *distant) Stats() struct{ sema.Stats } {
	return struct{ sema.Stats }{sema.Stats{Capacity: 40, InUse: 40}}
}

func TestAdapter_ResizesInTheBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &distant{err: errors.New("the store is away")}
		a := admit.Adapt(d, &admit.AIMD{Max: 100})
		start := time.Now()
		for range 600 { // six seconds, with a window every 100 ms
			a.Sample(admit.OK, time.Millisecond)
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(start); took != 6*time.Second {
			t.Errorf("samples waited for the resize: %v", took)
		}
		time.Sleep(5 * time.Second)
		d.mu.Lock()
		defer d.mu.Unlock()
		if n := len(d.sizes); n < 4 || n > 6 || d.sizes[n-1] != a.Limit() || a.Limit() != 81 { // at 81, less than half of it is in use
			t.Errorf("resized to %v, the limit is %d", d.sizes, a.Limit())
		}
	})
}

func TestAdapt_PanicsWithoutResize(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	admit.Adapt(struct{}{}, &admit.AIMD{})
}
