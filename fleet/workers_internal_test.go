package fleet

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestABoundedContextEnds(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var w workers
			w.begin()
			defer w.end()
			byTime, byLife := w.within(time.Second), w.within(time.Second)
			defer byTime.end()
			defer byLife.end()
			if deadline, ok := byTime.Deadline(); !ok || time.Until(deadline) != time.Second {
				t.Errorf("deadline %v, %t", deadline, ok)
			}
			if asked {
				byTime.Done()
				byLife.Done()
			}
			time.Sleep(time.Second - time.Nanosecond)
			if byTime.Err() != nil || byLife.Err() != nil {
				t.Errorf("asked %t: it ends too early: %v, %v", asked, byTime.Err(), byLife.Err())
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if byTime.Err() != context.DeadlineExceeded || context.Cause(byTime) != context.DeadlineExceeded {
				t.Errorf("asked %t: after its time: %v, %v", asked, byTime.Err(), context.Cause(byTime))
			}
			<-byTime.Done()
		})
	}
}

func TestABoundedContextEndsWithTheLife(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		var w workers
		w.begin()
		ctx := w.within(time.Hour)
		defer ctx.end()
		if asked {
			ctx.Done()
		}
		w.end()
		<-ctx.Done()
		if ctx.Err() != context.Canceled {
			t.Errorf("asked %t: %v", asked, ctx.Err())
		}
	}
}

// Children of the context, which engines make, need no goroutine.
func TestChildrenOfABoundedContext(t *testing.T) {
	var w workers
	w.begin()
	defer w.end()
	ctx := w.within(time.Hour)
	defer ctx.end()
	before := runtime.NumGoroutine()
	for range 100 {
		_, cancel := context.WithCancel(ctx)
		defer cancel()
	}
	if more := runtime.NumGoroutine() - before; more > 50 {
		t.Errorf("%d goroutines for 100 children", more)
	}
}

// Workers are reused, and no more than a few are kept.
func TestWorkersAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w workers
		w.begin()
		release := make(chan struct{})
		for range 10 {
			w.start(func() { <-release })
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		if idle := w.idle.Load(); idle != maxIdle {
			t.Errorf("%d are idle, want %d", idle, maxIdle)
		}
		done := make(chan struct{})
		w.start(func() { close(done) })
		<-done
		synctest.Wait()
		if idle := w.idle.Load(); idle != maxIdle {
			t.Errorf("%d are idle after more work, want %d", idle, maxIdle)
		}
		w.end()
		if w.start(func() {}) || w.join() {
			t.Error("there is work after the end")
		}
	})
}
