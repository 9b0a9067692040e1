package admit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// panics calls fn and reports whether it panicked.
func panics(fn func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	fn()
	return false
}

// A limitFunc is a Limit.
type limitFunc func(admit.Window) int64

func (f limitFunc) Next(w admit.Window) int64 { return f(w) }

// TestController_PanicsOfUserFunctionsLoseNothing makes each function of the user panic.
func TestController_PanicsOfUserFunctionsLoseNothing(t *testing.T) {
	t.Parallel()
	t.Run("Degrade while a request holds a rate and a probe", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			all, own := rate.New(5, time.Hour), rate.New(1, time.Hour)
			b := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Second, Probes: 1})
			c := admit.New(admit.Config{
				Rate: all, RateOf: func(string) rate.Limiter { return own }, Breaker: b, Logger: quiet,
				Degrade: func(admit.Load) bool { panic("broken") },
			})
			mustAdmit(t, c, admit.Request{}).Done(admit.OK)
			b.Trip()
			time.Sleep(time.Second)
			if !panics(func() { c.Admit(t.Context(), admit.Request{}) }) { //semavet:ignore it panics
				t.Error("the panic was swallowed")
			}
			if free := all.Stats().Free; free != 4 {
				t.Errorf("%d free of the rate, want 4", free)
			}
			call(t, b, admit.OK, 0) // the place of the probe is free
		})
	})
	t.Run("OnChange at the end of a request", func(t *testing.T) {
		t.Parallel()
		b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 1, OnChange: func(_, _ admit.State) { panic("broken") }})
		c := admit.New(admit.Config{Queue: wfq.New(1), Breaker: b, Logger: quiet})
		a := mustAdmit(t, c, admit.Request{})
		if !panics(func() { a.Done(admit.Failed) }) {
			t.Error("the panic was swallowed")
		}
		if n := c.Stats().InUse; n != 0 {
			t.Errorf("%d permits leaked", n)
		}
	})
	t.Run("Limit at the end of a request", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			windows := 0
			limit := limitFunc(func(w admit.Window) int64 {
				if windows++; windows == 1 {
					panic("broken")
				}
				return 7
			})
			c := admit.New(admit.Config{Queue: wfq.New(20), Limit: limit, Logger: quiet})
			panicked := 0
			for range 40 {
				a := mustAdmit(t, c, admit.Request{})
				time.Sleep(10 * time.Millisecond)
				if panics(func() { a.Done(admit.OK) }) {
					panicked++
				}
			}
			if st := c.Stats(); panicked != 1 || st.InUse != 0 || st.Capacity != 7 {
				t.Errorf("%d panics, %d in use, the limit is %d; want 1, 0 and 7", panicked, st.InUse, st.Capacity)
			}
		})
	})
}
