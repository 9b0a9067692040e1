package fleet

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestBounded_EndsAfterItsTime(t *testing.T) {
	t.Parallel()
	for _, called := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var w workers
			w.begin()
			defer w.end()
			byTime, byLife := w.within(time.Second, limit{}), w.within(time.Second, limit{})
			defer byTime.release()
			defer byLife.release()
			if deadline, ok := byTime.Deadline(); !ok || time.Until(deadline) != time.Second {
				t.Errorf("deadline %v, %t", deadline, ok)
			}
			if called {
				byTime.Done()
				byLife.Done()
			}
			time.Sleep(time.Second - time.Nanosecond)
			if byTime.Err() != nil || byLife.Err() != nil {
				t.Errorf("Done called %t: the context ended too early: %v, %v", called, byTime.Err(), byLife.Err())
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if byTime.Err() != context.DeadlineExceeded || context.Cause(byTime) != context.DeadlineExceeded {
				t.Errorf("Done called %t: after its time: %v, %v", called, byTime.Err(), context.Cause(byTime))
			}
			<-byTime.Done()
		})
	}
}

func TestBounded_EndsWithTheWorkers(t *testing.T) {
	t.Parallel()
	for _, called := range []bool{false, true} {
		var w workers
		w.begin()
		ctx := w.within(time.Hour, limit{})
		defer ctx.release()
		if called {
			ctx.Done()
		}
		w.end()
		<-ctx.Done()
		if ctx.Err() != context.Canceled {
			t.Errorf("Done called %t: %v", called, ctx.Err())
		}
	}
}

// TestBounded_EndsWithItsLimit checks that the context of a caller's exchange ends when the caller
// gives up, and not later than the caller has to return.
func TestBounded_EndsWithItsLimit(t *testing.T) {
	t.Parallel()
	for _, called := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var w workers
			w.begin()
			defer w.end()
			caller, cancel := context.WithCancel(context.Background())
			byCaller, byTime := w.within(time.Hour, limit{ctx: caller}), w.within(time.Hour, limit{context.Background(), time.Now().Add(time.Second)})
			defer byCaller.release()
			defer byTime.release()
			if called {
				byCaller.Done()
			}
			if byCaller.Err() != nil {
				t.Errorf("Done called %t: ended too early: %v", called, byCaller.Err())
			}
			cancel()
			synctest.Wait()
			if byCaller.Err() != context.Canceled {
				t.Errorf("Done called %t: the caller has given up: %v", called, byCaller.Err())
			}
			<-byCaller.Done()
			if deadline, ok := byTime.Deadline(); !ok || time.Until(deadline) != time.Second {
				t.Errorf("deadline %v, %t, want that of the limit", deadline, ok)
			}
		})
	}
}

// TestBounded_ChildrenNeedNoGoroutine checks that contexts which stores derive need no goroutine.
func TestBounded_ChildrenNeedNoGoroutine(t *testing.T) {
	var w workers
	w.begin()
	defer w.end()
	ctx := w.within(time.Hour, limit{})
	defer ctx.release()
	before := runtime.NumGoroutine()
	for range 100 {
		_, cancel := context.WithCancel(ctx)
		defer cancel()
	}
	if more := runtime.NumGoroutine() - before; more > 50 {
		t.Errorf("%d goroutines for 100 children", more)
	}
}

// TestWorkers_AreReusedAndBounded checks that workers are reused, and that few idle ones are kept.
func TestWorkers_AreReusedAndBounded(t *testing.T) {
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
			t.Errorf("%d workers are idle, want %d", idle, maxIdle)
		}
		done := make(chan struct{})
		w.start(func() { close(done) })
		<-done
		synctest.Wait()
		if idle := w.idle.Load(); idle != maxIdle {
			t.Errorf("%d workers are idle after more work, want %d", idle, maxIdle)
		}
		w.end()
		if w.start(func() {}) || w.join() {
			t.Error("work was started after end")
		}
	})
}
