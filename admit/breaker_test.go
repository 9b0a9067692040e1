package admit_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
)

// call reports one result to a breaker, and ends the test if it rejects the call.
func call(t *testing.T, b *admit.Breaker, o admit.Result, took time.Duration) {
	t.Helper()
	a, err := b.Allow()
	if err != nil {
		t.Fatalf("rejected: %v", err)
	}
	a.Done(o, took)
}

func wantState(t *testing.T, b *admit.Breaker, want admit.State) {
	t.Helper()
	if got := b.State(); got != want {
		t.Fatalf("the breaker is %v, want %v", got, want)
	}
}

func TestBreaker_OpensAndCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var changes []admit.State
		b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 10, OpenFor: time.Second, Probes: 2, OnChange: func(_, to admit.State) { changes = append(changes, to) }})
		for i := range 9 {
			call(t, b, admit.Result(i%2), 0) // 4 of 9 fail
		}
		wantState(t, b, admit.Closed)
		call(t, b, admit.Failed, 0)
		wantState(t, b, admit.Open)
		_, err := b.Allow()
		if r := wantReason(t, err, admit.ReasonBreaker); r.RetryAfter != time.Second || !errors.Is(err, sema.ErrUnavailable) {
			t.Errorf("%+v", r)
		}
		time.Sleep(time.Second)
		wantState(t, b, admit.HalfOpen)
		call(t, b, admit.OK, 0)
		wantState(t, b, admit.HalfOpen)
		call(t, b, admit.OK, 0)
		wantState(t, b, admit.Closed)
		call(t, b, admit.Failed, 0) // earlier failures are forgotten
		wantState(t, b, admit.Closed)
		if len(changes) != 3 {
			t.Errorf("changes: %v", changes)
		}
	})
}

func TestBreaker_OpensForSlowCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 4, SlowCall: time.Second, SlowRatio: 0.75})
		call(t, b, admit.OK, time.Millisecond)
		for range 3 {
			wantState(t, b, admit.Closed)
			call(t, b, admit.OK, time.Second)
		}
		wantState(t, b, admit.Open)
	})
}

func TestBreaker_ForgetsOldResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 10, Window: 10 * time.Second})
		for range 9 {
			call(t, b, admit.Failed, 0)
		}
		time.Sleep(11 * time.Second)
		for range 9 {
			call(t, b, admit.Failed, 0)
		}
		wantState(t, b, admit.Closed)
		call(t, b, admit.Failed, 0)
		wantState(t, b, admit.Open)
	})
}

// TestBreaker_ProbesExpire checks that probes without a result do not wedge the breaker, as
// they do in gobreaker.
func TestBreaker_ProbesExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Second, Probes: 2, ProbeTimeout: 5 * time.Second})
		b.Trip()
		time.Sleep(time.Second)
		var lost [2]admit.Attempt
		for i := range lost {
			var err error
			if lost[i], err = b.Allow(); err != nil {
				t.Fatal(err)
			}
		}
		_, err := b.Allow()
		if r := wantReason(t, err, admit.ReasonBreaker); r.RetryAfter != 5*time.Second {
			t.Errorf("retry after %v, want the end of the probes", r.RetryAfter)
		}
		time.Sleep(5 * time.Second)
		call(t, b, admit.OK, 0) // takes the place of an expired one
		call(t, b, admit.OK, 0)
		wantState(t, b, admit.Closed)
		lost[0].Done(admit.Failed, time.Hour) // must not open it: its phase is over
		wantState(t, b, admit.Closed)
	})
}

func TestBreaker_LateResultOfAProbeCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Second, Probes: 1, ProbeTimeout: time.Second})
		b.Trip()
		time.Sleep(time.Second)
		late, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // expired
		wantState(t, b, admit.HalfOpen)
		late.Done(admit.OK, 2*time.Second)
		wantState(t, b, admit.Closed)
	})
}

// TestBreaker_LateResultsCount reports failures of calls that began before the breaker closed
// again. gobreaker drops them (its issue 122).
func TestBreaker_LateResultsCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 5, OpenFor: time.Second, Probes: 1})
		var early []admit.Attempt
		for range 5 {
			a, err := b.Allow()
			if err != nil {
				t.Fatal(err)
			}
			early = append(early, a)
		}
		b.Trip()
		time.Sleep(time.Second)
		call(t, b, admit.OK, 0)
		wantState(t, b, admit.Closed)
		for _, a := range early {
			a.Done(admit.Failed, time.Second)
		}
		wantState(t, b, admit.Open)
	})
}

func TestBreaker_FailedProbesOpenForLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Second, MaxOpenFor: 3 * time.Second, Probes: 1})
		b.Trip()
		for _, open := range []time.Duration{1, 2, 3, 3} {
			time.Sleep(open*time.Second - time.Nanosecond)
			wantState(t, b, admit.Open)
			time.Sleep(time.Nanosecond)
			call(t, b, admit.Failed, 0)
		}
	})
}

func TestBreaker_IgnoredProbeFreesItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Second, Probes: 1})
		b.Trip()
		time.Sleep(time.Second)
		for range 10 {
			call(t, b, admit.Ignored, 0)
		}
		wantState(t, b, admit.HalfOpen)
	})
}

// TestBreaker_ResultsOfAnEarlierPhaseDecideNothing reports probes after the phase that they
// belong to has ended.
func TestBreaker_ResultsOfAnEarlierPhaseDecideNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Second, Probes: 3})
		b.Trip()
		time.Sleep(time.Second)
		var early [2]admit.Attempt
		for i := range early {
			var err error
			if early[i], err = b.Allow(); err != nil {
				t.Fatal(err)
			}
		}
		call(t, b, admit.Failed, 0)
		time.Sleep(2 * time.Second)
		call(t, b, admit.OK, 0)
		call(t, b, admit.OK, 0)
		early[0].Done(admit.OK, 0)
		wantState(t, b, admit.HalfOpen)
		early[1].Done(admit.Failed, 0)
		wantState(t, b, admit.HalfOpen)
		call(t, b, admit.OK, 0)
		wantState(t, b, admit.Closed)
	})
}
