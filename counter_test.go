package sema_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

func TestCounterFromZeroIsASignal(t *testing.T) {
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

func TestCounterRefusesToExceedItsMaximum(t *testing.T) {
	c := sema.NewCounter(1, 3, sema.Name("jobs"))
	wantErr(t, c.Post(3), sema.ErrOverRelease)
	if c.Value() != 1 {
		t.Fatal("a refused post changed the counter")
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

func TestCounterServesInTurn(t *testing.T) {
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
				t.Fatal("somebody overtook the first in line")
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
			t.Error("one post must wake all it lets through")
		}
	})
}

func TestCounterWaitFailsWithAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := sema.NewCounter(0, 2, sema.MaxWaiters(1))
		var noContext context.Context
		wantErr(t, c.Wait(noContext, 1), sema.ErrInvalid)
		wantErr(t, c.Wait(t.Context(), -1), sema.ErrInvalid)
		wantErr(t, c.Wait(t.Context(), 3), sema.ErrTooLarge)
		wantErr(t, c.Wait(t.Context(), 0), nil)
		if c.TryWait(-1) || c.TryWait(math.MaxInt64) {
			t.Error("a try that makes no sense succeeded")
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
		wantErr(t, c.Post(1), nil)
		wantErr(t, c.Wait(t.Context(), 1), sema.ErrClosed)
		wantErr(t, c.Wait(t.Context(), 0), sema.ErrClosed)
		if c.TryWait(0) {
			t.Error("a closed counter lets even nothing through")
		}
	})
	wantPanic(t, "initial above maximum", func() { sema.NewCounter(2, 1) })
	wantPanic(t, "negative", func() { sema.NewCounter(-1, 1) })
	wantPanic(t, "no room", func() { sema.NewCounter(0, 0) })
	wantPanic(t, "zero Counter", func() { new(sema.Counter).Wait(t.Context(), 1) })
}

func TestCounterLosesNoPost(t *testing.T) {
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

func TestCounterTellsOfRefusedPostsAndCountsAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		c := sema.NewCounter(0, 2, sema.Name("jobs"), sema.Observe(&j), sema.Unfair)
		wantErr(t, c.Post(3), sema.ErrOverRelease)
		if e := wantKinds(t, &j, sema.OverReleased); e[0].Name != "jobs" || e[0].Weight != 3 {
			t.Errorf("%+v", e[0])
		}
		for range 5 {
			go c.Wait(t.Context(), 1)
		}
		synctest.Wait()
		c.Post(1) // one is woken to compete, and still in line
		if n := c.Waiters(); n != 5 {
			t.Errorf("%d waiters, want 5", n)
		}
		c.Close()
	})
}
