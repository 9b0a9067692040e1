package wfq

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// TestQueue_KeepsClassesThatAreAhead checks that a class that has used more than others
// that waited is not forgiven when it is garbage-collected, and is deleted once it would be
// served like any other.
func TestQueue_KeepsClassesThatAreAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := New(1)
		hog, other := q.Class("hog"), q.Class("other")
		p, err := hog.Acquire(context.Background(), 1)
		if err != nil {
			t.Fatal(err)
		}
		got := queueOne(t, other, 1)
		time.Sleep(time.Second) // the hog uses this while another waits
		p.Release()
		synctest.Wait()
		later := queueOne(t, other, 1)

		q.names.entries.Store("hog", &entry{class: hog.class}) // as if its Class were collected
		has := func() bool { _, ok := q.names.entries.Load("hog"); return ok }
		dropClass(hog.class)
		q.Class("another") // looks again
		if !has() {
			t.Error("a class that is ahead was deleted")
		}
		(<-got).Release()
		wantServed(t, q, later)
		time.Sleep(time.Minute) // all others could have used as much
		q.Class("yet another")
		if has() {
			t.Error("a class that is no longer ahead was not deleted")
		}
	})
}

func TestBusyClock_CountsTheTimeInWhichCallersWait(t *testing.T) {
	t.Parallel()
	q := New(1)
	step := func(now int64, waiters int, want int64) {
		t.Helper()
		q.now = now
		switch {
		case q.waiters == 0 && waiters > 0:
			q.busy.startLocked(q)
			q.waiters = waiters
		case q.waiters > 0 && waiters == 0:
			q.waiters = waiters
			q.busy.stopLocked(q)
		}
		if at := q.busy.at(q); at != want {
			t.Errorf("%d at %d, want %d", at, now, want)
		}
	}
	step(1000, 0, 0)
	step(1010, 1, 0)
	step(1015, 1, 5)
	step(1017, 0, 7)
	step(1050, 0, 7)
	step(1060, 1, 7)
	step(1061, 1, 8)
}

// TestQueue_WaitForTheMutexIsNoStepOfTheClock passes a time that was read long before the
// mutex was locked.
func TestQueue_WaitForTheMutexIsNoStepOfTheClock(t *testing.T) {
	t.Parallel()
	q := New(1)
	q.mu.Lock()
	defer q.mu.Unlock()
	before := now()
	q.tickLocked(before - int64(time.Hour))
	if q.skew != 0 || q.now < before || q.now > now() {
		t.Errorf("at %d, between %d and %d; skew %d, want none", q.now, before, now(), q.skew)
	}
}

func TestTier_RaisedAsFarAsPossible(t *testing.T) {
	t.Parallel()
	q := New(1, Aging(1))
	q.now = math.MaxInt / 2
	for _, c := range []struct{ level, want int }{{0, math.MaxInt / 2}, {math.MaxInt - 1, math.MaxInt}, {math.MinInt, math.MinInt + math.MaxInt/2}} {
		low := &tier{level: c.level, aged: agedHeap{{since: 0}}}
		if got := low.raisedLocked(q); got != c.want {
			t.Errorf("tier %d is raised to %d, want %d", c.level, got, c.want)
		}
	}
}

// TestWaiter_GiveUpAfterAGrant checks what a caller gets that gives up when it was granted
// its permits already: it keeps them if only the time limit has passed.
func TestWaiter_GiveUpAfterAGrant(t *testing.T) {
	t.Parallel()
	for _, why := range []error{&detailed{sema.ErrTimeout, "1s"}, context.Canceled} {
		q := New(1)
		w := &waiter{class: q.Class("a").class, n: 1}
		q.lock()
		if err := w.class.tryLocked(w); err != nil {
			t.Fatal(err)
		}
		q.unlock()
		timedOut := why != context.Canceled
		err := w.giveUp(why, timedOut)
		st := q.Stats()
		if timedOut && (err != nil || st.InUse != 1) || !timedOut && (err != why || st.InUse != 0 || st.Cancelled != 1) {
			t.Errorf("gave up because of %v: %v, %d in use", why, err, st.InUse)
		}
	}
}
