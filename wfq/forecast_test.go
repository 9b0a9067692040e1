package wfq_test

import (
	"testing"
	"testing/synctest"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// TestClass_ForecastIsWhatAcquireDoes compares forecasts with what the calls do then.
// It counts allocations, so it runs alone.
func TestClass_ForecastIsWhatAcquireDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(4, sema.MaxWaiters(2))
		q.Set("small", wfq.Share{Max: 2, MaxWaiters: 1})
		q.Set("high", wfq.Share{Tier: 1})
		want := func(class string, n int64, waits bool, sentinel error) {
			t.Helper()
			wait, err := q.Class(class).Forecast(n)
			if err != sentinel || (wait > 0) != waits {
				t.Errorf("Forecast(%d) of %q: %v, %v; want a wait: %v, error %v", n, class, wait, err, waits, sentinel)
			}
			if a := testing.AllocsPerRun(10, func() { _, _ = q.Class(class).Forecast(n) }); a > 0 {
				t.Errorf("Forecast allocates %v times", a)
			}
		}
		want("small", 2, false, nil)
		want("small", 3, false, sema.ErrTooLarge)
		want("x", 5, false, sema.ErrTooLarge)
		want("x", 0, false, nil)
		held, err := q.Class("x").Acquire(t.Context(), 4)
		if err != nil {
			t.Fatal(err)
		}
		want("x", 1, true, nil)
		for range 2 {
			go func() {
				p, err := q.Class("x").Acquire(t.Context(), 1)
				if err == nil {
					p.Release()
				}
			}()
		}
		synctest.Wait()
		want("x", 1, false, sema.ErrQueueFull)
		want("high", 1, true, nil) // it would displace a waiter
		if q.Stats().Waiters != 2 {
			t.Error("a forecast has displaced a waiter")
		}
		q.Set("small", wfq.Share{Max: 2, MaxWaiters: sema.NoWaiters})
		want("small", 1, false, sema.ErrQueueFull)
		drained := make(chan error, 1)
		go func() { drained <- q.Drain(t.Context()) }()
		synctest.Wait()
		want("x", 1, false, sema.ErrDraining)
		held.Release()
		<-drained
		q.Close()
		want("x", 1, false, sema.ErrClosed)
	})
}
