package admit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/wfq"
)

// Defects of other libraries for admission control. Some are tested where the code is:
//   - panics that leak a permit: TestHandler_ReleasesOnce, TestTransport_PanicReturnsThePermit,
//     and TestInterceptors_PanicsReturnThePermit of grpcadmit
//   - clients that free a permit before the body is read: TestTransport_HoldsThePermitUntilTheBodyIsClosed
//   - slow clients that pin permits: TestHandler_SlowClientReturnsItsPermit
//   - a Retry-After of 0: TestRetryAfter_IsJitteredAndAtLeastASecond
//   - limiters without a callback at the end of a call: TestStream_HoldsAPermitUntilItEnds
//   - breakers that a lost probe wedges: TestBreaker_ProbesExpire
//   - pools whose Close wakes no waiter (puddle), and that wake waiters at random (golang/go
//     31708): TestPastBug_PuddleCloseWakesWaiters and TestPastBug_Go31708WaitersAreServedInOrder
//     of package pool

// TestPastBug_Sentinel394CheckThenActOvershoot: the count was checked and raised in two
// steps, so that 20,036 calls were in flight under a cap of 20,000; also Netflix
// concurrency-limits 234.
func TestPastBug_Sentinel394CheckThenActOvershoot(t *testing.T) {
	t.Parallel()
	const limit = 3
	c := admit.New(admit.Config{Queue: wfq.New(limit), Logger: quiet})
	var inFlight atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 1000 {
				admitting := c.Admit
				if i%2 == 0 {
					admitting = c.TryAdmit
				}
				a, err := admitting(t.Context(), admit.Request{})
				if err != nil {
					continue
				}
				if n := inFlight.Add(1); n > limit {
					t.Errorf("%d in flight, the limit is %d", n, limit)
				}
				inFlight.Add(-1)
				a.Done(admit.OK)
			}
		})
	}
	wg.Wait()
}

// TestPastBug_Sentinel556WeightsAreCounted: the weight of a call was checked, and 1 counted.
func TestPastBug_Sentinel556WeightsAreCounted(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Queue: wfq.New(10), Logger: quiet})
	a := mustAdmit(t, c, admit.Request{Weight: 7})
	_, err := c.TryAdmit(t.Context(), admit.Request{Weight: 4})
	wantReason(t, err, admit.ReasonFull)
	b := mustAdmit(t, c, admit.Request{Weight: 3})
	if st := c.Stats(); st.InUse != 10 {
		t.Errorf("%d in use, want 10", st.InUse)
	}
	a.Done(admit.OK)
	if st := c.Stats(); st.InUse != 3 {
		t.Errorf("%d in use, want 3", st.InUse)
	}
	b.Done(admit.OK)
}

// TestPastBug_HandOffIsNotLost: a release that found no receiver at its unbuffered channel
// dropped the hand-off, and the waiter that came an instant later waited for ever.
func TestPastBug_HandOffIsNotLost(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Queue: wfq.New(1), Logger: quiet})
	for range 2000 { // the test times out if a waiter is not woken
		a := mustAdmit(t, c, admit.Request{})
		var wg sync.WaitGroup
		wg.Go(func() { mustAdmit(t, c, admit.Request{}).Done(admit.OK) })
		wg.Go(func() { a.Done(admit.OK) })
		wg.Wait()
	}
}

// TestPastBug_Vitess20310ExpiredWaitersAreNotServed: permits were handed to requests whose
// deadline had passed, and those behind them expired meanwhile.
func TestPastBug_Vitess20310ExpiredWaitersAreNotServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1)
		c := admit.New(admit.Config{Queue: q, Logger: quiet})
		held := mustAdmit(t, c, admit.Request{})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := c.Admit(ctx, admit.Request{}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a request whose deadline has passed: %v", err)
				}
			})
		}
		synctest.Wait()
		live := make(chan error)
		go func() {
			a, err := c.Admit(t.Context(), admit.Request{})
			a.Done(admit.OK)
			live <- err
		}()
		time.Sleep(2 * time.Second)
		wg.Wait()
		if st := q.Stats(); st.Waiters != 1 {
			t.Errorf("%d wait after 100 deadlines have passed, want 1", st.Waiters)
		}
		held.Done(admit.OK)
		if err := <-live; err != nil {
			t.Error(err)
		}
	})
}

// TestPastBug_Envoy18152RejectionsAreExplained: a rejected request got a status code and no
// reason.
func TestPastBug_Envoy18152RejectionsAreExplained(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Name: "api", Queue: wfq.New(1, sema.MaxWaiters(0)), Logger: quiet})
	held := mustAdmit(t, c, admit.Request{})
	defer held.Done(admit.OK)
	_, err := c.Admit(t.Context(), admit.Request{Class: "paid"})
	r := wantReason(t, err, admit.ReasonQueueFull)
	if r.Controller != "api" || r.Class != "paid" || c.Stats().Shed[admit.ReasonQueueFull] != 1 {
		t.Errorf("%+v, counted %v", r, c.Stats().Shed)
	}
}
