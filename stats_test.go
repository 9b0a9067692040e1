package sema_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// TestStats_CountsOfAcquireAll checks that a call of AcquireAll counts at each of its
// semaphores.
func TestStats_CountsOfAcquireAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := sema.New(1, sema.MaxWait(time.Second)), sema.New(1)
		wants := []sema.Want{{Gate: a, N: 1}, {Gate: b, N: 1}}
		all := func(ctx context.Context, want error) {
			t.Helper()
			p, err := sema.AcquireAll(ctx, wants...)
			wantErr(t, err, want)
			p.Release()
		}
		all(t.Context(), nil) // joins no queue
		held := mustAcquire(t, b, 1)
		all(t.Context(), sema.ErrTimeout)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		all(ctx, context.DeadlineExceeded)
		time.AfterFunc(time.Second/4, held.Release)
		all(t.Context(), nil)
		held = mustAcquire(t, b, 1)
		time.AfterFunc(time.Second/4, func() { b.Close() })
		all(t.Context(), sema.ErrClosed)
		all(t.Context(), sema.ErrClosed)
		held.Release()
		want := sema.Counts{Acquired: 2, Waited: 4, TimedOut: 1, Cancelled: 1, Rejected: 2, WaitTime: 2 * time.Second}
		if got := a.Stats().Counts; got != want {
			t.Errorf("first: %+v, want %+v", got, want)
		}
		want.Acquired += 2 // acquired by itself
		if got := b.Stats().Counts; got != want {
			t.Errorf("second: %+v, want %+v", got, want)
		}
	})
}

// TestStats_CancelThatRacesAGrantIsCountedOnce checks that the count agrees with the
// result that the caller gets.
func TestStats_CancelThatRacesAGrantIsCountedOnce(t *testing.T) {
	s := sema.New(1)
	seen := sema.Counts{}
	for range *stressOps / 20 {
		held := mustAcquire(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := acquiring(ctx, s, 1)
		waitersReach(t, 1, func() int { return s.Stats().Waiters })
		var releasing sync.WaitGroup
		releasing.Go(held.Release)
		cancel()
		seen.Acquired++
		seen.Waited++
		switch r := <-waiting; r.err {
		case nil:
			seen.Acquired++
			r.permit.Release()
		default:
			seen.Cancelled++
		}
		releasing.Wait()
	}
	got := s.Stats().Counts
	got.WaitTime = 0
	if got != seen {
		t.Errorf("%+v, want %+v", got, seen)
	}
}

// TestStats_WaitTimeOfALongQueue checks the wait time of a long queue, for which the clock
// is read seldom. The sum is accurate to a few per cent, whether waiters change all the
// time or stay.
func TestStats_WaitTimeOfALongQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 200
		s := sema.New(1)
		held := mustAcquire(t, s, 1)
		began := time.Now()
		var want time.Duration
		served := make(chan time.Duration)
		for range waiters {
			go func() {
				queued := time.Now()
				p := mustAcquire(t, s, 1)
				served <- time.Since(queued)
				time.Sleep(time.Second)
				p.Release()
			}()
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		before := s.Stats().WaitTime
		held.Release()
		for range waiters {
			want += <-served
			st := s.Stats()
			if st.WaitTime < before {
				t.Fatalf("WaitTime decreased from %v to %v", before, st.WaitTime)
			}
			before = st.WaitTime
		}
		time.Sleep(time.Since(began))
		st := s.Stats()
		if off := float64(st.WaitTime-want) / float64(want); off < -0.05 || off > 0.05 {
			t.Errorf("%v, want about %v", st.WaitTime, want)
		}
		if st.Waited != waiters || st.Acquired != waiters+1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestCounts_Failed(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("store: %w", &sema.Error{Op: "acquire", Err: err}) }
	for _, c := range []struct {
		err    error
		queued bool
		want   sema.Counts
	}{
		{nil, true, sema.Counts{}},
		{wrapped(sema.ErrTimeout), true, sema.Counts{TimedOut: 1}},
		{wrapped(sema.ErrFull), false, sema.Counts{Rejected: 1}},
		{wrapped(sema.ErrQueueFull), false, sema.Counts{Rejected: 1}},
		{wrapped(sema.ErrTooLarge), true, sema.Counts{Rejected: 1}},
		{wrapped(sema.ErrDraining), true, sema.Counts{Rejected: 1}},
		{wrapped(sema.ErrClosed), false, sema.Counts{Rejected: 1}},
		{wrapped(sema.ErrInvalid), false, sema.Counts{}},
		{wrapped(sema.ErrUnavailable), true, sema.Counts{}},
		{context.DeadlineExceeded, true, sema.Counts{Cancelled: 1}},
		{errors.New("a cause"), true, sema.Counts{Cancelled: 1}},
		{context.Canceled, false, sema.Counts{}},
	} {
		var got sema.Counts
		if got.Failed(c.err, c.queued); got != c.want {
			t.Errorf("%v, queued %v: %+v, want %+v", c.err, c.queued, got, c.want)
		}
	}
}

func TestWeighted_Stats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.NewWeighted(3)
		wantErr(t, s.Acquire(t.Context(), 2), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, s.Acquire(ctx, 2), context.DeadlineExceeded)
		go s.Acquire(t.Context(), 3)
		time.Sleep(2 * time.Second)
		want := sema.Stats{Capacity: 3, InUse: 2, Free: 1, Waiters: 1, Counts: sema.Counts{Waited: 2, Cancelled: 1, WaitTime: 3 * time.Second}}
		if got := s.Stats(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		s.Release(2)
	})
}
