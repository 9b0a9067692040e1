package rate_test

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
)

// TestGate_UsedInABubble checks that permits return to a gate that was created outside of a
// bubble, where the clock steps back by decades.
func TestGate_UsedInABubble(t *testing.T) {
	t.Parallel()
	g := rate.New(1, time.Second)
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			for g.Stats().Free > 0 {
				must(t, g, 1)
			}
			for i := range 3 {
				if delay := g.Delay(1); delay != time.Second {
					t.Fatalf("permit %d after %v, want 1s", i, delay)
				}
				must(t, g, 1)
			}
			if took := time.Since(start); took != 3*time.Second {
				t.Errorf("3 permits after %v, want 3s", took)
			}
			if st := g.Stats(); st.WaitTime < 0 || st.WaitTime%(3*time.Second) != 0 {
				t.Errorf("waited %v in all, want multiples of 3s", st.WaitTime)
			}
		})
	}
}

// TestGate_PacesCallersThatComeLate checks that permits are an interval apart, whether or
// not a caller waits for them, and whatever reads the state of the gate meanwhile.
func TestGate_PacesCallersThatComeLate(t *testing.T) {
	for _, late := range []time.Duration{0, 100 * time.Millisecond, 900 * time.Millisecond, 1900 * time.Millisecond} {
		t.Run(late.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := rate.New(1, time.Second, rate.Burst(1))
				for range 3 {
					time.Sleep(late)
					g.Stats()
					must(t, g, 1)
					granted := time.Now()
					must(t, g, 1)
					if apart := time.Since(granted); apart != time.Second {
						t.Errorf("two permits are %v apart, want 1s", apart)
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

func TestGate_PacesAfterAPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(1, time.Second, rate.Burst(1))
		must(t, g, 1)
		g.PauseUntil(time.Now().Add(1900 * time.Millisecond))
		must(t, g, 1)
		granted := time.Now()
		must(t, g, 1)
		if apart := time.Since(granted); apart != time.Second {
			t.Errorf("two permits are %v apart, want 1s", apart)
		}
	})
}

// TestGate_PauseUntilTheFarFuture runs in and out of a bubble, where the times of the clock
// are negative and positive.
func TestGate_PauseUntilTheFarFuture(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T) {
		g := rate.New(10, time.Second)
		for _, end := range []time.Time{time.Unix(1<<40, 0), time.Now().Add(math.MaxInt64)} {
			g.PauseUntil(end)
			if _, err := g.TryAcquire(t.Context(), 1); !errors.Is(err, sema.ErrFull) {
				t.Errorf("a try during a pause until %v: %v, want ErrFull", end.Year(), err)
			}
			if delay := g.Delay(1); delay < 100*365*24*time.Hour {
				t.Errorf("Delay %v, want centuries", delay)
			}
		}
		g.PauseUntil(time.Time{})
		must(t, g, 1)
	}
	t.Run("real time", test)
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, test) })
}
