package sema_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// servedAt holds all permits, queues waiters of the given weights one after the other,
// and then releases. Each waiter holds for a second. servedAt returns when each was
// served.
func servedAt(t *testing.T, s *sema.Semaphore, weights []int64) []time.Duration {
	all := mustAcquire(t, s, s.Stats().Capacity)
	served := make([]time.Duration, len(weights))
	began := time.Now()
	var waiting sync.WaitGroup
	for i, n := range weights {
		waiting.Go(func() {
			p := mustAcquire(t, s, n)
			served[i] = time.Since(began)
			time.Sleep(time.Second)
			p.Release()
		})
		synctest.Wait()
	}
	all.Release()
	waiting.Wait()
	return served
}

func TestFair_ServesInOrderOfArrivalWhateverTheWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		weights := []int64{1, 4, 1, 3, 2, 4, 4, 1, 1, 1, 3, 2, 2, 1, 4, 1, 4, 2, 3, 1}
		served := servedAt(t, sema.New(4), weights)
		if !slices.IsSorted(served) || served[len(served)-1] < 5*time.Second {
			t.Errorf("served at %v", served)
		}
	})
}

func TestLIFO_ServesTheNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := servedAt(t, sema.New(1, sema.LIFO), slices.Repeat([]int64{1}, 10))
		for i, at := range served {
			if want := time.Duration(9-i) * time.Second; at != want {
				t.Errorf("waiter %d served after %v, want %v", i, at, want)
			}
		}
	})
}

func TestFair_HeavyWaiterIsNotOvertakenByLightOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(4)
		ctx, stop := context.WithCancel(t.Context())
		for i := range 8 { // a stream that never leaves the semaphore empty
			go func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				for ctx.Err() == nil {
					if p, err := s.Acquire(ctx, 1); err == nil {
						time.Sleep(time.Second)
						p.Release()
					}
				}
			}()
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		p := mustAcquire(t, s, 4)
		if waited := time.Since(began); waited > 2*time.Second {
			t.Errorf("waited %v, longer than the callers ahead hold their permits", waited)
		}
		p.Release()
		stop()
		time.Sleep(2 * time.Second)
	})
}

func TestTryAcquire_NeverOvertakesAFairQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(2)
		held := mustAcquire(t, s, 1)
		heavy := acquiring(t.Context(), s, 2)
		synctest.Wait()
		_, err := s.TryAcquire(t.Context(), 1) // one is free, but owed to the waiter
		wantErr(t, err, sema.ErrFull)
		_, err = s.TryAcquireFree(t.Context())
		wantErr(t, err, sema.ErrFull)
		held.Release()
		(<-heavy).permit.Release()
	})
}

func TestUnfair_ArrivalMayBarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(2, sema.Unfair)
		held := mustAcquire(t, s, 1)
		heavy := acquiring(t.Context(), s, 2)
		synctest.Wait()
		mustAcquire(t, s, 1).Release()
		held.Release()
		(<-heavy).permit.Release()
	})
}

// TestUnfair_WaiterIsServedWithinABound keeps a semaphore busy with arrivals that always
// leave too little for a heavy waiter.
func TestUnfair_WaiterIsServedWithinABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(3, sema.Unfair)
		ctx, stop := context.WithCancel(t.Context())
		var stream sync.WaitGroup
		for i := range 6 {
			stream.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				for ctx.Err() == nil {
					if p, err := s.Acquire(ctx, 1); err == nil {
						time.Sleep(700 * time.Microsecond)
						p.Release()
					}
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		p := mustAcquire(t, s, 3)
		// A millisecond until it counts as starving, one more until the holders have
		// released, and one for the waiters queued ahead of it.
		if waited := time.Since(began); waited > 4*time.Millisecond {
			t.Errorf("starved for %v", waited)
		}
		p.Release()
		stop()
		stream.Wait()
	})
}

func TestUnfair_WaitersDoNotStarveUnderRealLoad(t *testing.T) {
	s := sema.New(1, sema.Unfair)
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					mustAcquire(t, s, 1).Release()
				}
			}
		})
	}
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		p, err := s.Acquire(ctx, 1)
		cancel()
		if err != nil {
			t.Fatal("starved")
		}
		p.Release()
	}
	close(stop)
	busy.Wait()
}

// TestQueue_FollowersOfAContextAreServedAndCancelled covers the case in which one waiter
// watches a context for many.
func TestQueue_FollowersOfAContextAreServedAndCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 100
		s := sema.New(1)
		held := mustAcquire(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan int, waiters)
		cancelled := make(chan error, waiters)
		for i := range waiters {
			go func() {
				p, err := s.Acquire(ctx, 1)
				if err != nil {
					cancelled <- err
					return
				}
				served <- i
				time.Sleep(time.Second)
				p.Release()
			}()
			synctest.Wait()
		}
		held.Release()
		// Long enough for the watcher and some of its successors to be served.
		time.Sleep(60*time.Second + time.Millisecond)
		cancel()
		synctest.Wait()
		if len(served) != 61 || len(cancelled) != waiters-61 {
			t.Errorf("%d served, %d cancelled", len(served), len(cancelled))
		}
		for i := range len(served) {
			if got := <-served; got != i {
				t.Fatalf("waiter %d was served as number %d", got, i)
			}
		}
		time.Sleep(2 * time.Second)
		wantStats(t, s, 0, 0)
	})
}

func TestQueue_FollowersAreCancelledAfterTheWatcherTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(1, sema.MaxWait(time.Second))
		held := mustAcquire(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var waits []<-chan result
		for range 20 {
			waits = append(waits, acquiring(ctx, s, 1))
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(850 * time.Millisecond) // the first waiters, including the watcher, have timed out
		cancel()
		synctest.Wait()
		timeouts := 0
		for _, w := range waits {
			if !isDone(w) {
				t.Fatal("a follower was not cancelled")
			}
			if err := (<-w).err; err == context.Canceled {
				continue
			}
			timeouts++
		}
		if timeouts == 0 || timeouts == 20 {
			t.Errorf("%d of 20 timed out, want some", timeouts)
		}
		held.Release()
		wantStats(t, s, 0, 0)
	})
}
