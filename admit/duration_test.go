package admit_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// TestController_DurationsExcludeTheWait lets a request wait for five seconds and run for
// none. If the wait counted, a full queue would look like a slow dependency: the breaker
// would open, and a limit would fall the further the longer requests wait.
func TestController_DurationsExcludeTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 1, SlowCall: time.Second, SlowRatio: 0.5})
		c := admit.New(admit.Config{Queue: wfq.New(1), Breaker: b, Logger: quiet})
		first := mustAdmit(t, c, admit.Request{})
		time.AfterFunc(5*time.Second, func() { first.Done(admit.Ignored) })
		mustAdmit(t, c, admit.Request{}).Done(admit.OK)
		wantState(t, b, admit.Closed)
		slow := mustAdmit(t, c, admit.Request{})
		time.Sleep(time.Second)
		slow.Done(admit.OK)
		wantState(t, b, admit.Open)
	})
}

// TestController_DegradedRequestsAreNotMeasured ends requests that got a cheap response: how
// long they took is no measure of the dependency.
func TestController_DegradedRequestsAreNotMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := limitFunc(func(w admit.Window) int64 {
			t.Errorf("measured %+v", w)
			return w.Limit
		})
		c := admit.New(admit.Config{Queue: wfq.New(1), Limit: limit, Degrade: func(admit.Load) bool { return true }, Logger: quiet})
		held := mustAdmit(t, c, admit.Request{})
		for range 100 {
			mustAdmit(t, c, admit.Request{}).Done(admit.OK)
			time.Sleep(10 * time.Millisecond)
		}
		held.Done(admit.Ignored)
	})
}

func TestController_DoShowsThatARequestIsDegraded(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Degrade: func(admit.Load) bool { return true }, Logger: quiet})
	for _, shed := range []bool{false, true} {
		c.Shed(shed)
		if err := c.Do(t.Context(), admit.Request{}, func(ctx context.Context) error {
			if got := admit.FromContext(ctx).Degraded(); got != shed {
				t.Errorf("degraded is %v, want %v", got, shed)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

func TestController_WaitsUnderTheLongestDeadlines(t *testing.T) {
	t.Parallel()
	for _, most := range []time.Duration{0, math.MaxInt64} { // not in a bubble: its clock begins before the process did
		c := admit.New(admit.Config{Queue: wfq.New(1), MaxWait: most, Logger: quiet})
		ctx, cancel := context.WithTimeout(t.Context(), math.MaxInt64)
		defer cancel()
		for range 3 {
			a, err := c.Admit(ctx, admit.Request{})
			if err != nil {
				t.Fatalf("MaxWait %v: %v", most, err)
			}
			time.AfterFunc(10*time.Millisecond, func() { a.Done(admit.OK) })
		}
	}
}

func TestController_CancelDuringAWaitRefunds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, budget := rate.New(5, time.Hour), rate.New(10, time.Hour)
		b := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Second, Probes: 1})
		c := admit.New(admit.Config{Rate: all, Budget: budget, Breaker: b, Logger: quiet})
		mustAdmit(t, c, admit.Request{Cost: 10}).Done(admit.OK)
		b.Trip()
		time.Sleep(time.Second)
		cause := errors.New("the client left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		if _, err := c.Admit(ctx, admit.Request{Cost: 5}); err != cause {
			t.Errorf("%v, want the cause of the context", err)
		}
		if st := budget.Stats(); all.Stats().Free != 4 || st.Waiters != 0 {
			t.Errorf("%d free of the rate, want 4; %d wait for the budget", all.Stats().Free, st.Waiters)
		}
		call(t, b, admit.OK, 0) // the place of the probe is free
	})
}

// TestController_WaitBudgetCoversAllWaits makes a request wait for a rate, and then for the
// queue.
func TestController_WaitBudgetCoversAllWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, all := wfq.New(1), rate.New(1, time.Second)
		c := admit.New(admit.Config{Queue: q, Rate: all, MaxWait: 1500 * time.Millisecond, Logger: quiet})
		mustAdmit(t, c, admit.Request{}).Done(admit.OK)
		start := time.Now()
		time.AfterFunc(500*time.Millisecond, func() { q.Class("other").Acquire(context.Background(), 1) }) //semavet:ignore it is held to the end
		_, err := c.Admit(t.Context(), admit.Request{})
		wantReason(t, err, admit.ReasonTimeout)
		if waited := time.Since(start); waited != 1500*time.Millisecond {
			t.Errorf("waited %v, want 1.5s for both", waited)
		}
		if free := all.Stats().Free; free != 1 {
			t.Errorf("%d free of the rate, want 1", free)
		}
	})
}

func TestResultOf_Timeouts(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.DeadlineExceeded, sema.ErrTimeout, timeout{}, errors.Join(errors.New("read"), timeout{})} {
		if got := admit.ResultOf(err); got != admit.Dropped {
			t.Errorf("%v is %v, want dropped", err, got)
		}
	}
}

// A timeout is an error like those of package net.
type timeout struct{}

func (timeout) Error() string   { return "i/o timeout" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }
