package rate_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/sematest"
)

func TestGate_Conforms(t *testing.T) {
	t.Parallel()
	sematest.Check(t, sematest.Traits{FIFO: true, Weights: true, ByTime: true}, func(_ *testing.T, capacity int64) sema.Gate {
		return rate.New(capacity, time.Hour)
	})
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

func must(t *testing.T, g sema.Gate, n int64) sema.Permit {
	t.Helper()
	p, err := g.Acquire(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantFree(t *testing.T, g *rate.Gate, want int64) {
	t.Helper()
	if free := g.Stats().Free; free != want {
		t.Errorf("%d free, want %d", free, want)
	}
}

func TestGate_GrantsTheRate(t *testing.T) {
	for _, c := range []struct {
		n, burst int64
		per      time.Duration
	}{{100, 10, time.Second}, {7, 1, time.Second}, {1_000_000, 1, time.Second}, {3, 3, time.Hour}, {999_999_937, 1000, time.Minute}} {
		t.Run("", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := rate.New(c.n, c.per, rate.Burst(c.burst))
				start := time.Now()
				for range c.burst { // without a wait
					must(t, g, 1)
				}
				if time.Since(start) != 0 {
					t.Fatalf("the burst took %v", time.Since(start))
				}
				const more = 1000
				for range more {
					must(t, g, 1)
				}
				want := time.Duration(math.Ceil(float64(more) * float64(c.per) / float64(c.n)))
				if got := time.Since(start); got != want {
					t.Errorf("%d permits beyond the burst took %v, want %v", more, got, want)
				}
			})
		})
	}
}

func TestGate_BurstIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(10, time.Second, rate.Burst(5))
		time.Sleep(time.Hour)
		must(t, g, 5)
		if _, err := g.TryAcquire(t.Context(), 1); !errors.Is(err, sema.ErrFull) {
			t.Errorf("after an hour more than the burst was free: %v", err)
		}
		if _, err := g.Acquire(t.Context(), 6); !errors.Is(err, sema.ErrTooLarge) {
			t.Errorf("6 of a burst of 5: %v, want ErrTooLarge", err)
		}
	})
}

func TestGate_HeavyCallerIsNotOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(10, time.Second)
		must(t, g, 10)
		var order []string
		var mu sync.Mutex
		var wg sync.WaitGroup
		queue := func(name string, n int64) {
			wg.Go(func() {
				must(t, g, n)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			})
			synctest.Wait()
		}
		queue("heavy", 10)
		queue("light", 1)
		if _, err := g.TryAcquire(t.Context(), 1); !errors.Is(err, sema.ErrFull) {
			t.Errorf("a try overtakes: %v", err)
		}
		start := time.Now()
		wg.Wait()
		if strings.Join(order, " ") != "heavy light" || time.Since(start) != 1100*time.Millisecond {
			t.Errorf("%v after %v", order, time.Since(start))
		}
	})
}

// TestGate_CancelledWaitTakesNothing: a cancelled wait takes nothing and delays no other caller (golang/go#56924).
func TestGate_CancelledWaitTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(10, time.Second)
		must(t, g, 10)
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := g.Acquire(ctx, 10); err != context.DeadlineExceeded {
				t.Fatal(err)
			}
			cancel()
		}
		wantFree(t, g, 1) // 100 ms have passed
		start := time.Now()
		must(t, g, 10)
		if waited := time.Since(start); waited != 900*time.Millisecond {
			t.Errorf("waited %v, want 900ms", waited)
		}
	})
}

func TestGate_CancelRacesGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(1, time.Second)
		must(t, g, 1)
		granted := 0
		for range 200 { // the context ends at the instant of the grant
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := g.Acquire(ctx, 1); err == nil {
				granted++
			} else if err != context.DeadlineExceeded {
				t.Fatal(err)
			} else {
				must(t, g, 1) // at once: the permit was refunded
				granted++
			}
			cancel()
		}
		if granted != 200 || g.Stats().Acquired != 201 {
			t.Errorf("%d granted, %d counted", granted, g.Stats().Acquired)
		}
	})
}

func TestGate_SettleRefundsAndCharges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(10, time.Second)
		p := must(t, g, 6)
		g.Settle(p, 2)
		wantFree(t, g, 8)
		g.Settle(p, 0) // the first counts
		wantFree(t, g, 8)
		q := must(t, g, 8)
		g.Settle(q, 18)
		if st := g.Stats(); st.Free != 0 || st.Debt != 10 {
			t.Errorf("%+v, want a debt of 10", st)
		}
		start := time.Now()
		must(t, g, 1)
		if waited := time.Since(start); waited != 1100*time.Millisecond {
			t.Errorf("waited %v for the debt, want 1.1s", waited)
		}
	})
}

func TestGate_SettleServesWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(1, time.Hour, rate.Burst(5))
		p := must(t, g, 5)
		done := make(chan struct{})
		go func() { defer close(done); must(t, g, 4) }()
		synctest.Wait()
		start := time.Now()
		g.Settle(p, 1)
		<-done
		if time.Since(start) != 0 {
			t.Errorf("served after %v, want at once", time.Since(start))
		}
	})
}

// TestGate_RefundAfterAFullBucket: a refund of permits that have returned since, to a bucket that was full, must not admit
// more than the burst (golang/go#69419).
func TestGate_RefundAfterAFullBucket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(10, time.Second)
		p := must(t, g, 10)
		time.Sleep(time.Second) // full again
		must(t, g, 10)
		g.Settle(p, 0)
		wantFree(t, g, 0)
	})
}

func TestGate_SetChangesTheRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(1, time.Hour)
		must(t, g, 1)
		errs := make(chan error, 2)
		go func() { _, err := g.Acquire(t.Context(), 1); errs <- err }()
		synctest.Wait()
		start := time.Now()
		g.Set(2, time.Second)
		if err := <-errs; err != nil || time.Since(start) != 500*time.Millisecond {
			t.Errorf("%v after %v, want a permit after 500ms", err, time.Since(start))
		}
		if n, per, burst := g.Rate(); n != 2 || per != time.Second || burst != 2 {
			t.Error(n, per, burst)
		}
		go func() { _, err := g.Acquire(t.Context(), 2); errs <- err }()
		synctest.Wait()
		g.Set(1, time.Second)
		if err := <-errs; !errors.Is(err, sema.ErrTooLarge) {
			t.Errorf("a waiter of more than the new burst: %v, want ErrTooLarge", err)
		}
	})
}

func TestGate_PauseUntil(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(10, time.Second)
		start := time.Now()
		g.PauseUntil(start.Add(time.Minute))
		if _, err := g.TryAcquire(t.Context(), 1); !errors.Is(err, sema.ErrFull) {
			t.Errorf("a try during a pause: %v", err)
		}
		if d := g.Delay(1); d != time.Minute {
			t.Errorf("Delay %v, want 1m", d)
		}
		must(t, g, 10)
		if time.Since(start) != time.Minute {
			t.Errorf("granted after %v, want 1m", time.Since(start))
		}
		g.PauseUntil(time.Now().Add(time.Hour))
		done := make(chan struct{})
		go func() { defer close(done); must(t, g, 1) }()
		synctest.Wait()
		g.PauseUntil(time.Time{}) // ends the pause
		<-done
		if waited := time.Since(start) - time.Minute; waited != 100*time.Millisecond {
			t.Errorf("waited %v, want 100ms", waited)
		}
	})
}

func TestGate_DelayIsExact(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(3, time.Second)
		must(t, g, 3)
		for range 100 {
			d := g.Delay(2)
			time.Sleep(d - 1)
			if _, err := g.TryAcquire(t.Context(), 2); !errors.Is(err, sema.ErrFull) {
				t.Fatalf("free 1 ns before the delay: %v", err)
			}
			time.Sleep(time.Nanosecond)
			if _, err := g.TryAcquire(t.Context(), 2); err != nil {
				t.Fatalf("not free after the delay: %v", err)
			}
		}
		if d := g.Delay(4); d != math.MaxInt64 {
			t.Errorf("Delay of more than the burst: %v", d)
		}
		var full *sema.Error
		if _, err := g.TryAcquire(t.Context(), 3); !errors.As(err, &full) || full.After != g.Delay(3) || full.After == 0 {
			t.Errorf("%+v, want After", full)
		}
	})
}

func TestGate_MaxWaitAndMaxWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(1, time.Hour, sema.Name("mails"), sema.MaxWait(time.Minute), sema.MaxWaiters(1))
		must(t, g, 1)
		first := make(chan error)
		go func() { _, err := g.Acquire(t.Context(), 1); first <- err }()
		synctest.Wait()
		if _, err := g.Acquire(t.Context(), 1); !errors.Is(err, sema.ErrQueueFull) {
			t.Errorf("a second waiter: %v, want ErrQueueFull", err)
		}
		start := time.Now()
		err := <-first
		if !errors.Is(err, sema.ErrTimeout) || time.Since(start) != time.Minute || !strings.Contains(err.Error(), `"mails"`) {
			t.Errorf("after %v: %v, want ErrTimeout after 1m", time.Since(start), err)
		}
		var fault *sema.Error
		if errors.As(err, &fault); fault.After != g.Delay(1) || fault.After != 59*time.Minute || !strings.Contains(sema.Hint(err), "raise the rate") {
			t.Errorf("%+v, want the time until a permit returns, and a hint about rates", fault)
		}
		st := g.Stats()
		if st.Waited != 1 || st.TimedOut != 1 || st.Rejected != 1 || st.WaitTime != time.Minute || st.Waiters != 0 {
			t.Errorf("%+v", st)
		}
		if _, err := g.Acquire(t.Context(), 2); !errors.Is(err, sema.ErrTooLarge) || !strings.Contains(sema.Hint(err), "burst") {
			t.Errorf("%v, hint %q", err, sema.Hint(err))
		}
	})
}

func TestGate_DrainAndClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(1, time.Hour)
		must(t, g, 1)
		errs := make(chan error)
		wait := func() {
			go func() { _, err := g.Acquire(t.Context(), 1); errs <- err }()
			synctest.Wait()
		}
		wait()
		if err := g.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; !errors.Is(err, sema.ErrDraining) {
			t.Errorf("a waiter of a drain: %v", err)
		}
		if _, err := g.TryAcquire(t.Context(), 0); !errors.Is(err, sema.ErrDraining) {
			t.Errorf("weight 0 while draining: %v", err)
		}
		g.Resume()
		wait()
		g.Close()
		if err := <-errs; !errors.Is(err, sema.ErrClosed) {
			t.Errorf("a waiter of a close: %v", err)
		}
		g.Resume()
		if _, err := g.Acquire(t.Context(), 1); !errors.Is(err, sema.ErrClosed) || !g.Stats().Closed {
			t.Errorf("after close: %v", err)
		}
	})
}

func TestGate_IsObserved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events []sema.Event
		g := rate.New(1, time.Second, sema.Name("mails"), sema.Observe(sema.ObserverFunc(func(e sema.Event) { events = append(events, e) })))
		must(t, g, 1)
		must(t, g, 1)
		g.TryAcquire(t.Context(), 1)
		g.Close()
		var kinds []string
		for _, e := range events {
			if e.Name != "mails" {
				t.Errorf("an event without the name: %+v", e)
			}
			kinds = append(kinds, e.Kind.String())
		}
		if got := strings.Join(kinds, " "); !strings.Contains(got, "queued") || strings.Count(got, "acquired") != 2 || !strings.Contains(got, "rejected") || !strings.HasSuffix(got, "closed") {
			t.Error(got)
		}
	})
}

// TestGate_RejectsWeightZero checks that a rejection of weight 0 is counted and reported as
// others are.
func TestGate_RejectsWeightZero(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rejections := 0
		g := rate.New(1, time.Second, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventRejected {
				rejections++
			}
		})))
		g.Close()
		if _, err := g.Acquire(t.Context(), 0); !errors.Is(err, sema.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
		if st := g.Stats(); st.Rejected != 1 || rejections != 1 {
			t.Errorf("%d counted, %d reported, want 1", st.Rejected, rejections)
		}
	})
}

func TestGate_PermitsAreSpent(t *testing.T) {
	t.Parallel()
	g := rate.New(2, time.Hour, sema.Diagnose(sema.DiagnoseFull))
	p := must(t, g, 1)
	p.Release()
	p.Release()
	if p.Held() || p.Weight() != 1 || g.Stats().Free != 1 {
		t.Errorf("held %v, weight %d, %v", p.Held(), p.Weight(), g)
	}
	other := rate.New(1, time.Hour)
	for what, settle := range map[string]func(){"another gate's permit": func() { other.Settle(p, 0) }, "a negative cost": func() { g.Settle(p, -1) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s settles", what)
				}
			}()
			settle()
		}()
	}
	g.Settle(sema.Permit{}, 5) // inert
	wantFree(t, g, 1)
}

func TestNew_RejectsBadArguments(t *testing.T) {
	t.Parallel()
	for what, create := range map[string]func(){
		"no permits":      func() { rate.New(0, time.Second) },
		"no period":       func() { rate.New(1, 0) },
		"no burst":        func() { rate.Burst(0) },
		"a negative rate": func() { rate.New(1, time.Second).Set(-1, time.Second) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is accepted", what)
				}
			}()
			create()
		}()
	}
}

func TestGate_AllocatesNothing(t *testing.T) {
	g := rate.New(1<<40, time.Second)
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() {
		p, err := g.TryAcquire(ctx, 1)
		q, err2 := g.Acquire(ctx, 1)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		g.Settle(p, 1)
		_ = q
	}); n > 0.5 { // the map of what was settled grows now and then
		t.Errorf("%v allocations", n)
	}
}
