package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// granted returns a reply with grants of one permit each.
func granted(config protocol.Config, inUse, wanted int64, leases ...protocol.Seq) *protocol.Reply {
	r := &protocol.Reply{Config: config, InUse: inUse, Wanted: wanted}
	for _, lease := range leases {
		r.Results = append(r.Results, protocol.Result{Kind: protocol.Granted, Lease: lease, Weight: 1})
	}
	return r
}

func TestPace_OfARateIsWhenItsPermitsReturn(t *testing.T) {
	t.Parallel()
	var p pace
	start := time.Unix(1_000_000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	config := protocol.Config{Kind: protocol.Rate, Capacity: 4, Window: 10_000_000}
	want := func(now time.Time, weight int64, why error, want time.Duration) {
		t.Helper()
		if got := p.freeIn(now, weight, why); got != want {
			t.Errorf("%d permits in %v, want %v", weight, got, want)
		}
	}
	next := func(now time.Time, want time.Duration, spent int64) {
		t.Helper()
		if in, granted := p.next(now); in != want || granted != spent {
			t.Errorf("the next permit in %v, of %d granted; want %v, %d", in, granted, want, spent)
		}
	}
	want(at(0), 1, sema.ErrFull, 0)
	next(at(0), 0, 0)
	p.observe(at(0), granted(config, 2, 0, 1, 2))
	next(at(1), 9*time.Second, 2)
	p.observe(at(2), granted(config, 2, 0, 2)) // not acknowledged
	p.observe(at(5), granted(config, 4, 0, 4, 3))
	next(at(6), 4*time.Second, 4)
	want(at(6), 1, sema.ErrFull, 4*time.Second)
	want(at(6), 2, sema.ErrFull, 4*time.Second)
	want(at(6), 3, sema.ErrFull, 9*time.Second)
	p.observe(at(7), granted(config, 4, 2))
	want(at(7), 1, sema.ErrFull, 8*time.Second)      // two are queued before it
	want(at(7), 2, sema.ErrTimeout, 3*time.Second)   // they are its own
	want(at(7), 1, sema.ErrQueueFull, 3*time.Second) // the next grant makes room
	want(at(7), 4, sema.ErrFull, 13*time.Second)     // those of the queue return a window later
	p.observe(at(11), granted(config, 4, 0, 5))      // the other one was granted elsewhere
	want(at(11), 3, sema.ErrFull, 10*time.Second)    //
	want(at(11), 4, sema.ErrFull, 0)                 // unknown
	next(at(14), time.Second, 3)
	want(at(30), 1, sema.ErrFull, 0) // nothing is known any more
	next(at(30), 0, 0)
}

func TestPace_OfASemaphoreFollowsTheQueueAndTheHolds(t *testing.T) {
	t.Parallel()
	var p pace
	now := time.Unix(1_000_000, 0)
	config := protocol.Config{Capacity: 10}
	var lease protocol.Seq
	for range 300 { // ten permits a second
		lease++
		now = now.Add(100 * time.Millisecond)
		p.observe(now, granted(config, 10, 50, lease))
	}
	if got := p.freeIn(now, 1, sema.ErrFull); got < 4*time.Second || got > 6*time.Second {
		t.Errorf("ten permits a second and fifty waiters: %v", got)
	}
	if got := p.freeIn(now, 1, sema.ErrQueueFull); got > 200*time.Millisecond {
		t.Errorf("until there is room in the queue: %v", got)
	}
	p.observe(now, granted(config, 10, 0))
	soon := p.freeIn(now, 1, sema.ErrFull)
	if soon > 200*time.Millisecond {
		t.Errorf("ten permits a second and no waiters: %v", soon)
	}
	later := p.freeIn(now.Add(20*time.Second), 1, sema.ErrFull)
	if later <= soon {
		t.Errorf("nothing was granted for 20s: %v, and %v before", later, soon)
	}
	if got := p.freeIn(now.Add(time.Hour), 10, sema.ErrFull); got != maxEstimate {
		t.Errorf("nothing was granted for an hour: %v", got)
	}
	if len(p.grants) > 2*paceParts {
		t.Errorf("%d parts are kept", len(p.grants))
	}
}

func TestMeter_LearnsHowLongALimitStaysReached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m limitMeter
		add := func(n int64) {
			if n > 0 {
				m.rose(m.Add(n), 2)
			} else {
				m.fell(m.Add(n), 2)
			}
		}
		add(1)
		if got := m.freeIn(); got != 0 {
			t.Errorf("before the limit was reached: %v", got)
		}
		for range 50 {
			add(1)
			time.Sleep(4 * time.Second)
			add(-1)
			time.Sleep(time.Minute) // not at the limit
		}
		add(1)
		if got := m.freeIn(); got < 3900*time.Millisecond || got > 4*time.Second {
			t.Errorf("it usually takes 4s: %v", got)
		}
		time.Sleep(9 * time.Second)
		if got := m.freeIn(); got != 9*time.Second {
			t.Errorf("it has taken 9s by now: %v", got)
		}
		time.Sleep(time.Hour)
		if got := m.freeIn(); got != maxEstimate {
			t.Errorf("it has taken an hour: %v", got)
		}
	})
}

// TestCatalog_AdvisesAsLongAsTheStoreIsAway checks that the waits of clients double while the
// store is away, up to a bound, and that a reply of the store ends that.
func TestCatalog_AdvisesAsLongAsTheStoreIsAway(t *testing.T) {
	serviceOver(t, func(t *testing.T, s *service, _ *countingStore) {
		down := &sema.Error{Op: "acquire", Err: sema.ErrUnavailable}
		advised := func() int { return s.problemOf(down).Retry }
		if got := advised(); got > 2 {
			t.Errorf("the store works: %d", got)
		}
		s.store.failed("apply", "db", errors.New("connection refused"))
		s.store.failed("apply", "db", context.DeadlineExceeded)
		for _, c := range []struct{ since, least, most int }{{0, 1, 2}, {8, 8, 12}, {3600, 30, 39}} {
			s.store.failedSince.Add(-int64(time.Duration(c.since) * time.Second))
			if got := advised(); got < c.least || got > c.most {
				t.Errorf("%ds later: %d", c.since, got)
			}
		}
		s.store.replied()
		if got := advised(); got > 2 {
			t.Errorf("the store works again: %d", got)
		}
	})
}
