package sematest_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/sematest"
)

func TestWrap_Delay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := sematest.Wrap(sema.New(1), 1, sematest.Delay(time.Minute))
		start := time.Now()
		for range 100 {
			p, err := g.Acquire(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
		}
		if mean := time.Since(start) / 100; mean < 20*time.Second || mean > 40*time.Second {
			t.Errorf("the mean delay is %v, want about 30s", mean)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if _, err := g.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a delay that outlasts the context: %v", err)
		}
		if g.Injected().Delayed != 101 {
			t.Errorf("%+v, want 101 delays", g.Injected())
		}
	})
}

func TestWrap_Reject(t *testing.T) {
	t.Parallel()
	g := sematest.Wrap(sema.New(1), 1, sematest.Reject(0.25, sema.ErrUnavailable))
	rejected := 0
	for i := range 1000 {
		acquire := g.Acquire
		if i%2 == 0 {
			acquire = g.TryAcquire
		}
		p, err := acquire(t.Context(), 1)
		switch {
		case errors.Is(err, sema.ErrUnavailable):
			rejected++
		case err != nil:
			t.Fatal(err)
		}
		p.Release()
	}
	if rejected < 150 || rejected > 350 || g.Injected().Rejected != rejected {
		t.Errorf("%d of 1000 rejected, %+v; want about 250", rejected, g.Injected())
	}
}

func TestWrap_Lose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := sema.New(1, sema.Name("db"))
		g := sematest.Wrap(inner, 1, sematest.Lose(1, time.Minute))
		p, err := g.Acquire(t.Context(), 1)
		if err != nil || p.Err() != nil {
			t.Fatal(err, p.Err())
		}
		select {
		case <-p.Lost():
		case <-time.After(2 * time.Minute):
			t.Fatal("the permit is not lost")
		}
		if !errors.Is(p.Err(), sema.ErrLost) {
			t.Errorf("Err: %v, want ErrLost", p.Err())
		}
		other, err := inner.TryAcquire(t.Context(), 1)
		if err != nil {
			t.Fatalf("the lost permit is not free for others: %v", err)
		}
		p.Release()
		if !other.Held() || inner.Stats().Free != 0 {
			t.Error("the release of a lost permit has released that of another caller")
		}
		other.Release()
		early, err := g.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		early.Release()
		time.Sleep(2 * time.Minute)
		if g.Injected().Lost != 1 || inner.Stats().Free != 1 {
			t.Errorf("%+v, %v: a permit was lost after its release", g.Injected(), inner)
		}
	})
}

// TestWrap_LoseSplitPermits loses the parts of a permit together, except for those that were
// released.
func TestWrap_LoseSplitPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(3)
		g := sematest.Wrap(s, 1, sematest.Lose(1, time.Second))
		for released := range 3 {
			p, err := g.Acquire(context.Background(), 3)
			if err != nil {
				t.Fatal(err)
			}
			first, rest, err := p.Split(1)
			if err != nil {
				t.Fatal(err)
			}
			if released > 0 {
				first.Release()
			}
			if released > 1 {
				rest.Release()
			}
			time.Sleep(2 * time.Second)
			if free := s.Stats().Free; free != 3 {
				t.Errorf("%d free, want 3", free)
			}
			if lost := rest.Err(); errors.Is(lost, sema.ErrLost) != (released < 2) {
				t.Errorf("%d of 2 parts released: %v", released, lost)
			}
			first.Release()
			rest.Release()
		}
		if lost := g.Injected().Lost; lost != 2 {
			t.Errorf("%d lost, want 2", lost)
		}
	})
}

// TestWrap_LoseLeavesRatesAlone checks that a permit that is not held stays what it is.
func TestWrap_LoseLeavesRatesAlone(t *testing.T) {
	t.Parallel()
	r := rate.New(2, time.Hour)
	p, err := sematest.Wrap(r, 1, sematest.Lose(1, time.Nanosecond)).Acquire(context.Background(), 2)
	if err != nil {
		t.Fatal(err)
	}
	r.Settle(p, 0)
	if free := r.Stats().Free; free != 2 {
		t.Errorf("%d free after a refund, want 2", free)
	}
}

func TestWrap_Starve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := sematest.Wrap(sema.New(1), 1, sematest.Starve(1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if _, err := g.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Hour {
			t.Errorf("after %v: %v, want a wait for the context", time.Since(start), err)
		}
		if g.Injected().Starved != 1 {
			t.Errorf("%+v, want 1 starved", g.Injected())
		}
	})
}

// TestWrap_TriesAreNeitherDelayedNorStarved checks that the counts agree.
func TestWrap_TriesAreNeitherDelayedNorStarved(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]sematest.Fault{"delay": sematest.Delay(time.Hour), "starve": sematest.Starve(1)} {
		g := sematest.Wrap(sema.New(1), 1, fault)
		p, err := g.TryAcquire(context.Background(), 1)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		p.Release()
		if got := g.Injected(); got != (sematest.Injected{}) {
			t.Errorf("%s: %+v, want no faults", name, got)
		}
	}
}

func TestWrap_SameSeedSameFaults(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) (rejected []int) {
		g := sematest.Wrap(sema.New(1), seed, sematest.Reject(0.5, sema.ErrTimeout))
		for i := range 64 {
			p, err := g.TryAcquire(context.Background(), 1)
			if err != nil {
				rejected = append(rejected, i)
			}
			p.Release()
		}
		return rejected
	}
	same, other := 0, run(2)
	for i, at := range run(1) {
		if run(1)[i] != at {
			t.Fatal("the same seed injects other faults")
		}
		if i < len(other) && other[i] == at {
			same++
		}
	}
	if same == len(other) {
		t.Error("another seed injects the same faults")
	}
}

func TestFault_RejectsSharesAboveOne(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]func(share float64){
		"Reject": func(share float64) { sematest.Reject(share, sema.ErrTimeout) },
		"Lose":   func(share float64) { sematest.Lose(share, 0) },
		"Starve": func(share float64) { sematest.Starve(share) },
	} {
		for _, share := range []float64{-0.1, 5, math.NaN()} { // 5 was meant to be 5 %
			func() {
				defer func() {
					if text, _ := recover().(string); !strings.HasPrefix(text, "sematest: "+name) {
						t.Errorf("%s(%v): %q", name, share, text)
					}
				}()
				create(share)
			}()
		}
		create(0)
		create(1)
	}
}
