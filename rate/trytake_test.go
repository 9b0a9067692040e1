package rate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/monotonic"
	"github.com/sema-go/sema/internal/seal"
	"github.com/sema-go/sema/rate"
)

// TestGate_TakeAt passes readings of the clock that are old, as those of callers that
// overtook each other.
func TestGate_TakeAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := rate.New(10, time.Second, rate.Burst(1))
		start := monotonic.Since()
		granted := 0
		for i := range 1000 { // a second
			late := time.Duration(i%2) * 1500 * time.Microsecond
			if _, ok := g.TakeAt(seal.Key{}, 1, monotonic.Since()-late); ok {
				granted++
			}
			time.Sleep(time.Millisecond)
		}
		if granted != 10 {
			t.Errorf("%d granted in %v, want 10", granted, monotonic.Since()-start)
		}
		if st := g.Stats(); st.Acquired != 10 || st.Rejected != 0 {
			t.Errorf("counted %+v, want 10 acquired and no failure", st.Counts)
		}
		time.Sleep(time.Second)
		g.PauseUntil(time.Now().Add(time.Second))
		for name, n := range map[string]int64{"a pause": 1, "no permits": 0, "a negative weight": -1} {
			if _, ok := g.TakeAt(seal.Key{}, n, monotonic.Since()); ok {
				t.Errorf("granted in spite of %s", name)
			}
		}
		time.Sleep(time.Second)
		if _, ok := g.TakeAt(seal.Key{}, 1, -1<<60); !ok {
			t.Error("a reading of another bubble grants nothing")
		}
		go g.Acquire(t.Context(), 1)
		synctest.Wait()
		time.Sleep(99 * time.Millisecond)
		if _, ok := g.TakeAt(seal.Key{}, 1, monotonic.Since()+time.Millisecond); ok {
			t.Error("overtook a waiter")
		}
		_ = g.Drain(t.Context())
		time.Sleep(time.Second)
		if _, ok := g.TakeAt(seal.Key{}, 1, monotonic.Since()); ok {
			t.Error("granted while draining")
		}
	})
}

func TestGate_TryTakeIsTryAcquireWithoutErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := 0
		for _, opts := range [][]rate.Option{nil, {sema.Observe(sema.ObserverFunc(func(sema.Event) { events++ }))}} {
			g := rate.New(2, time.Second, opts...)
			p, ok := g.TryTake(2)
			if !ok || p.Weight() != 2 {
				t.Fatalf("%v, %v", p, ok)
			}
			if _, ok := g.TryTake(1); ok {
				t.Error("granted more than the burst")
			}
			if _, ok := g.TryTake(-1); ok {
				t.Error("granted a negative weight")
			}
			if st := g.Stats(); st.Acquired != 1 || st.Rejected != 1 {
				t.Errorf("counted %+v", st.Counts)
			}
			g.Settle(p, 0)
			if _, ok := g.TryTake(2); !ok {
				t.Error("the refund is not available")
			}
		}
		if events == 0 {
			t.Error("observers saw nothing")
		}
	})
}
