package admit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// TestController_RefundsExactly rejects a request at the last check and compares the rates
// with what they were.
func TestController_RefundsExactly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1, sema.MaxWaiters(0))
		all, own, budget := rate.New(5, time.Hour), rate.New(5, time.Hour), rate.New(50, time.Hour)
		b := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Second, Probes: 1})
		c := admit.New(admit.Config{Queue: q, Rate: all, Budget: budget, Breaker: b, RateOf: func(string) rate.Limiter { return own }, Logger: quiet})
		b.Trip()
		time.Sleep(time.Second) // half-open: one probe may pass
		p, err := q.Class("other").Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			_, err := c.Admit(t.Context(), admit.Request{Cost: 10})
			wantReason(t, err, admit.ReasonQueueFull)
		}
		p.Release()
		for name, g := range map[string]*rate.Gate{"rate": all, "class rate": own, "budget": budget} {
			if st := g.Stats(); st.Free != st.Capacity {
				t.Errorf("%s: %d of %d free after rejections", name, st.Free, st.Capacity)
			}
		}
		mustAdmit(t, c, admit.Request{Cost: 10}).Done(admit.OK) // the probe was not used up
		if got := b.State(); got != admit.Closed {
			t.Errorf("the breaker is %v after its probe", got)
		}
	})
}

// TestController_RefundsEarlierSteps rejects at the budget: rate and probe are refunded.
func TestController_RefundsEarlierSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, budget := rate.New(5, time.Hour), rate.New(10, time.Hour, sema.MaxWaiters(0))
		b := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Second, Probes: 1})
		c := admit.New(admit.Config{Rate: all, Budget: budget, Breaker: b, Logger: quiet})
		mustAdmit(t, c, admit.Request{Cost: 8}).Done(admit.OK)
		b.Trip()
		time.Sleep(time.Second)
		for range 20 {
			_, err := c.Admit(t.Context(), admit.Request{Cost: 8})
			wantReason(t, err, admit.ReasonBudget)
		}
		if st := all.Stats(); st.Free != 4 {
			t.Errorf("%d free of the rate, want 4: rejected requests take nothing", st.Free)
		}
		mustAdmit(t, c, admit.Request{Cost: 1}).Done(admit.OK)
		if b.State() != admit.Closed {
			t.Error("rejected requests have used up the probes")
		}
	})
}

// TestController_RefundsTheRateForAClassOverItsOwn rejects at the rate of the class, at first
// without and then with a cost.
func TestController_RefundsTheRateForAClassOverItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, own := rate.New(5, time.Hour), rate.New(1, time.Hour, sema.MaxWaiters(0))
		c := admit.New(admit.Config{Rate: all, RateOf: func(string) rate.Limiter { return own }, Logger: quiet})
		mustAdmit(t, c, admit.Request{}).Done(admit.OK)
		for i := range int64(20) {
			_, err := c.Admit(t.Context(), admit.Request{Cost: i % 2})
			wantReason(t, err, admit.ReasonClassRate)
		}
		if st := all.Stats(); st.Free != 4 {
			t.Errorf("%d free of the rate, want 4: rejected requests take nothing", st.Free)
		}
	})
}
