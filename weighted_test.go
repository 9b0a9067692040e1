package sema_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	semaphore "github.com/sema-go/sema"
)

// Package bench compares Weighted with x/sync v0.24.0. The tests here check what the
// documentation of x/sync states.

func TestWeighted_ReturnsTheContextsErrorNotItsCause(t *testing.T) {
	w := semaphore.NewWeighted(1)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("a cause"))
	if err := w.Acquire(ctx, 1); err != context.Canceled {
		t.Errorf("%v", err)
	}
}

func TestWeighted_OversizeRequestWaitsForTheContextAndDelaysNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := semaphore.NewWeighted(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		oversize := make(chan error, 1)
		go func() { oversize <- w.Acquire(ctx, 3) }()
		synctest.Wait()
		if len(oversize) > 0 || !w.TryAcquire(2) {
			t.Error("an oversize request must wait without blocking others")
		}
		if err := <-oversize; err != context.DeadlineExceeded {
			t.Errorf("%v", err)
		}
	})
}

func TestWeighted_ZeroQueuesBehindWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := semaphore.NewWeighted(1)
		w.Acquire(t.Context(), 1)
		done := make(chan int64, 2)
		for _, n := range []int64{1, 0} {
			go func() {
				w.Acquire(t.Context(), n)
				done <- n
			}()
			synctest.Wait()
		}
		if w.TryAcquire(0) || len(done) > 0 {
			t.Error("zero overtook a waiter")
		}
		w.Release(1)
		synctest.Wait()
		if len(done) != 2 {
			t.Error("not served")
		}
	})
}

func TestWeighted_PanicsWithTheSameWords(t *testing.T) {
	w := semaphore.NewWeighted(1)
	for want, call := range map[string]func(){
		"semaphore: size < 0":                func() { semaphore.NewWeighted(-1) },
		"semaphore: n < 0":                   func() { w.Release(-1) },
		"semaphore: released more than held": func() { w.Release(1) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panic %v, want %v", got, want)
				}
			}()
			call()
		}()
	}
}

func TestWeighted_ZeroValueIsASemaphoreOfSizeZero(t *testing.T) {
	var w semaphore.Weighted
	if w.TryAcquire(1) || !w.TryAcquire(0) {
		t.Error("a size of 0 must grant weight 0 only")
	}
	wantPanic(t, "Release", func() { w.Release(1) })
}

func TestWeighted_AcquireOfTheWholeSizeExcludesAllOthers(t *testing.T) {
	w := semaphore.NewWeighted(math.MaxInt64)
	if err := w.Acquire(t.Context(), math.MaxInt64); err != nil || w.TryAcquire(1) {
		t.Fatalf("%v", err)
	}
	w.Release(math.MaxInt64)
	if !w.TryAcquire(1) {
		t.Fatal("not released")
	}
	w.Release(1)
	wantPanic(t, "over-release of the whole size", func() { w.Release(math.MaxInt64) })
	for range 4 {
		wantPanic(t, "another over-release", func() { w.Release(math.MaxInt64) })
	}
	if !w.TryAcquire(math.MaxInt64) {
		t.Fatal("over-releases reached the flags")
	}
}
