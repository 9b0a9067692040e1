package sema_test

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
)

func TestCounter_FromZeroIsASignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := sema.NewCounter(0, 1)
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			ready.Post(1) // by another goroutine than the one that waits
		}()
		wantErr(t, ready.Wait(t.Context(), 1), nil)
		if time.Since(began) != time.Second {
			t.Error("did not wait for the signal")
		}
	})
}

func TestCounter_RejectsPostsBeyondItsMaximum(t *testing.T) {
	c := sema.NewCounter(1, 3, sema.Name("jobs"))
	wantErr(t, c.Post(3), sema.ErrOverRelease)
	if c.Value() != 1 {
		t.Fatal("a rejected post changed the counter")
	}
	wantErr(t, c.Post(2), nil)
	wantErr(t, c.Post(1), sema.ErrOverRelease)
	wantErr(t, c.Post(0), nil)
	wantErr(t, c.Post(-1), sema.ErrInvalid)
	wantErr(t, c.Post(math.MaxInt64), sema.ErrOverRelease)
	if c.Value() != 3 || c.Max() != 3 {
		t.Errorf("value %d of %d", c.Value(), c.Max())
	}
}

func TestCounter_ServesInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := sema.NewCounter(0, 10)
		got := make(chan int64, 3)
		for _, n := range []int64{3, 1, 2} {
			go func() {
				c.Wait(t.Context(), n)
				got <- n
			}()
			synctest.Wait()
		}
		for posted, want := range map[int64]int64{3: 3} {
			c.Post(posted - 1)
			synctest.Wait()
			if len(got) > 0 || c.Waiters() != 3 || c.TryWait(1) {
				t.Fatal("the head of the queue was overtaken")
			}
			c.Post(1)
			synctest.Wait()
			if n := <-got; n != want {
				t.Fatalf("served %d", n)
			}
		}
		c.Post(3)
		synctest.Wait()
		if len(got) != 2 || c.Value() != 0 {
			t.Error("one post must wake all waiters that fit")
		}
	})
}

func TestCounter_WaitFailsWithAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := sema.NewCounter(0, 2, sema.MaxWaiters(1))
		var noContext context.Context
		wantErr(t, c.Wait(noContext, 1), sema.ErrInvalid)
		wantErr(t, c.Wait(t.Context(), -1), sema.ErrInvalid)
		wantErr(t, c.Wait(t.Context(), 3), sema.ErrTooLarge)
		wantErr(t, c.Wait(t.Context(), 0), nil)
		if c.TryWait(-1) || c.TryWait(math.MaxInt64) {
			t.Error("a TryWait with an invalid weight succeeded")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		waiting := make(chan error, 1)
		go func() { waiting <- c.Wait(ctx, 1) }()
		synctest.Wait()
		wantErr(t, c.Wait(ctx, 1), sema.ErrQueueFull)
		wantErr(t, <-waiting, context.DeadlineExceeded)
		go func() { waiting <- c.Wait(t.Context(), 1) }()
		synctest.Wait()
		c.Close()
		wantErr(t, <-waiting, sema.ErrClosed)
		wantErr(t, c.Wait(t.Context(), 1), sema.ErrClosed)
		wantErr(t, c.Wait(t.Context(), 0), sema.ErrClosed)
		if c.TryWait(0) {
			t.Error("a closed counter at 0 must reject weight 0")
		}
	})
	wantPanic(t, "initial above maximum", func() { sema.NewCounter(2, 1) })
	wantPanic(t, "negative", func() { sema.NewCounter(-1, 1) })
	wantPanic(t, "maximum 0", func() { sema.NewCounter(0, 0) })
	wantPanic(t, "zero Counter", func() { new(sema.Counter).Wait(t.Context(), 1) })
}

func TestCounter_ClosedGrantsWhatIsLeft(t *testing.T) {
	c := sema.NewCounter(5, 10, sema.Name("jobs"))
	c.Close()
	wantErr(t, c.Wait(t.Context(), 2), nil)
	wantErr(t, c.Wait(t.Context(), 4), sema.ErrClosed) // 3 are left, and it does not wait
	wantErr(t, c.Wait(t.Context(), 0), nil)
	if !c.TryWait(1) || c.TryWait(3) || !c.TryWait(0) {
		t.Error("TryWait must take what is left, and no more")
	}
	wantErr(t, c.Post(1), nil)
	if n, err := c.WaitUpTo(t.Context(), 4, 10); n != 3 || err != nil {
		t.Errorf("%d, %v: want the 3 that are left", n, err)
	}
	n, err := c.WaitUpTo(t.Context(), 0, 10)
	wantErr(t, err, sema.ErrClosed)
	wantErr(t, c.Wait(t.Context(), 1), sema.ErrClosed)
	if n != 0 || c.TryWait(1) || c.Value() != 0 {
		t.Errorf("took %d of an empty counter, which is at %d", n, c.Value())
	}
	wantErr(t, c.Close(), nil)
}

func TestCounter_CloseServesWaitersThatFit(t *testing.T) {
	for name, order := range map[string]sema.Option{"Fair": sema.Fair, "Unfair": sema.Unfair, "LIFO": sema.LIFO} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := sema.NewCounter(0, 10, order)
				ended := map[int64]chan error{}
				for _, n := range []int64{5, 2, 4, 1} {
					ended[n] = make(chan error, 1)
					go func() { ended[n] <- c.Wait(t.Context(), n) }()
					synctest.Wait()
				}
				c.Post(3) // in LIFO order this serves 1 already
				synctest.Wait()
				c.Close()
				for n, want := range map[int64]error{5: sema.ErrClosed, 2: nil, 4: sema.ErrClosed, 1: nil} {
					wantErr(t, <-ended[n], want)
				}
				if c.Value() != 0 || c.Waiters() != 0 {
					t.Errorf("%d left, %d waiting", c.Value(), c.Waiters())
				}
			})
		})
	}
}

func TestCounter_WaitUpTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := sema.NewCounter(7, 10)
		take := func(least, most, want int64) {
			t.Helper()
			if n, err := c.WaitUpTo(t.Context(), least, most); n != want || err != nil {
				t.Fatalf("%d to %d: got %d, %v, want %d", least, most, n, err, want)
			}
		}
		take(1, 3, 3)
		take(0, 0, 0)
		take(2, 100, 4)
		take(0, 5, 0)
		type batch struct {
			n   int64
			err error
		}
		first, second := make(chan batch, 1), make(chan error, 1)
		go func() {
			n, err := c.WaitUpTo(t.Context(), 2, 10)
			first <- batch{n, err}
		}()
		synctest.Wait()
		go func() { second <- c.Wait(t.Context(), 4) }()
		synctest.Wait()
		c.Post(1)
		synctest.Wait()
		if len(first) > 0 || c.Value() != 1 {
			t.Fatal("took less than its least")
		}
		c.Post(4)
		if b := <-first; b.n != 2 || b.err != nil {
			t.Errorf("%+v, want the least: another caller waits for the rest", b)
		}
		if len(second) > 0 || c.Value() != 3 {
			t.Error("the value must stay 3 while a caller waits for 4")
		}
		c.Post(1)
		wantErr(t, <-second, nil)
	})
}

func TestCounter_WaitUpToFailsWithAReason(t *testing.T) {
	c := sema.NewCounter(0, 2, sema.Name("jobs"), sema.MaxWaiters(0))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var noContext context.Context
	for _, call := range []struct {
		ctx         context.Context
		least, most int64
		want        error
	}{
		{noContext, 1, 1, sema.ErrInvalid},
		{t.Context(), -1, 1, sema.ErrInvalid},
		{t.Context(), 2, 1, sema.ErrInvalid},
		{t.Context(), 0, -1, sema.ErrInvalid},
		{t.Context(), 3, 4, sema.ErrTooLarge},
		{t.Context(), 1, math.MaxInt64, sema.ErrQueueFull},
		{ended, 1, 1, context.Canceled},
	} {
		n, err := c.WaitUpTo(call.ctx, call.least, call.most)
		wantErr(t, err, call.want)
		if n != 0 {
			t.Errorf("took %d with an error", n)
		}
	}
	wantErr(t, c.Post(2), nil)
	if n, err := c.WaitUpTo(t.Context(), 1, math.MaxInt64); n != 2 || err != nil {
		t.Errorf("%d, %v: want the whole value", n, err)
	}
	wantPanic(t, "zero Counter", func() { new(sema.Counter).WaitUpTo(t.Context(), 1, 1) })
}

func TestCounter_LosesNoPost(t *testing.T) {
	c := sema.NewCounter(0, 1000)
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for range 5000 {
				for c.Post(1) != nil {
					time.Sleep(time.Microsecond)
				}
			}
		})
		working.Go(func() {
			for range 5000 {
				if err := c.Wait(t.Context(), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	if c.Value() != 0 || c.Waiters() != 0 {
		t.Errorf("%d left, %d waiting", c.Value(), c.Waiters())
	}
}

func TestCounter_ReportsRejectedPostsAndCountsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		c := sema.NewCounter(0, 2, sema.Name("jobs"), sema.Observe(&j), sema.Unfair)
		wantErr(t, c.Post(3), sema.ErrOverRelease)
		if e := wantKinds(t, &j, sema.EventOverReleased); e[0].Name != "jobs" || e[0].Weight != 3 {
			t.Errorf("%+v", e[0])
		}
		for range 5 {
			go c.Wait(t.Context(), 1)
		}
		synctest.Wait()
		c.Post(1) // one waiter is woken to compete, and is still queued
		if n := c.Waiters(); n != 5 {
			t.Errorf("%d waiters, want 5", n)
		}
		c.Close()
	})
}

func TestCounter_ObserversReceiveWaitsAndPosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		c := sema.NewCounter(1, 3, sema.Name("jobs"), sema.MaxWait(time.Minute), sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull))
		wantErr(t, c.Wait(t.Context(), 1), nil)
		wantKinds(t, &j, sema.EventAcquired)
		if c.TryWait(1) {
			t.Fatal("lowered below 0")
		}
		if e := wantKinds(t, &j, sema.EventRejected); !errors.Is(e[0].Err, sema.ErrFull) {
			t.Errorf("%+v", e[0])
		}
		waiting := make(chan error, 1)
		go func() { waiting <- c.Wait(t.Context(), 2) }()
		synctest.Wait()
		if e := wantKinds(t, &j, sema.EventQueued); e[0].Name != "jobs" || e[0].Waiters != 1 || e[0].Site == "" {
			t.Errorf("%+v", e[0])
		}
		if text := profileText("sema.waiting"); !strings.Contains(text, "TestCounter_ObserversReceiveWaitsAndPosts") {
			t.Errorf("the wait is not in the profile:\n%s", text)
		}
		time.Sleep(5 * time.Second) // longer than deadlockAfter
		wantErr(t, c.Post(3), nil)
		wantErr(t, <-waiting, nil)
		synctest.Wait()
		released, acquired := sema.Event{}, sema.Event{}
		for _, e := range j.take() {
			switch e.Kind {
			case sema.EventReleased:
				released = e
			case sema.EventAcquired:
				acquired = e
			default:
				t.Errorf("%+v", e)
			}
		}
		if released.Weight != 3 || acquired.Weight != 2 || acquired.Wait != 5*time.Second {
			t.Errorf("%+v, %+v", released, acquired)
		}
		if n, err := c.WaitUpTo(t.Context(), 1, 5); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		wantKinds(t, &j, sema.EventAcquired)
		_, err := c.WaitUpTo(t.Context(), 1, 5)
		wantErr(t, err, sema.ErrTimeout)
		if e := wantKinds(t, &j, sema.EventQueued, sema.EventTimedOut); e[1].Wait != time.Minute {
			t.Errorf("%+v", e[1])
		}
		if text := profileText("sema.waiting"); strings.Contains(text, "TestCounter_ObserversReceiveWaitsAndPosts") {
			t.Errorf("the wait has ended, but is in the profile:\n%s", text)
		}
		wantErr(t, c.Post(4), sema.ErrOverRelease)
		wantKinds(t, &j, sema.EventOverReleased)
		found := false
		for _, w := range sema.Contention() {
			found = found || strings.Contains(w.Site, "counter_test.go:") && w.Waits == 1 && w.Total == 5*time.Second
		}
		if !found {
			t.Errorf("the wait is not in %+v", sema.Contention())
		}
	})
}

// TestCounter_WaitUnderAPermitIsNoDeadlock checks that a wait for a counter is not
// reported as a deadlock, whatever its caller holds: any goroutine may post.
func TestCounter_WaitUnderAPermitIsNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, observe := reports(sema.EventDeadlocked, sema.EventInverted)
		s := sema.New(1, sema.Name("held during a wait"), sema.Diagnose(sema.DiagnoseFull), observe)
		c := sema.NewCounter(0, 1, sema.Name("signal"), sema.Diagnose(sema.DiagnoseFull), observe)
		go func() {
			p := mustAcquire(t, s, 1)
			defer p.Release()
			c.Wait(t.Context(), 1)
		}()
		synctest.Wait()
		waiting := acquiring(t.Context(), s, 1)
		time.Sleep(time.Minute)
		c.Post(1)
		(<-waiting).permit.Release()
		wantKinds(t, j)
	})
}
