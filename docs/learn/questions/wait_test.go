package questions_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// A signal is remembered: a post before the wait is not lost, whereas a sync.Cond that is
// signalled before the wait has forgotten it.
func Example_signal() {
	ready := sema.NewCounter(0, 1)
	if err := ready.Post(1); err != nil { // the producer comes first
		fmt.Println(err)
		return
	}
	fmt.Println("waited:", ready.Wait(ctx, 1) == nil)
	// Output:
	// waited: true
}

// Zero permits are a valid start: nothing is closed. Closed is a state of its own.
func Example_zeroIsNotClosed() {
	paused := sema.New(0, sema.Name("jobs"))
	_, err := paused.TryAcquire(ctx, 1)
	fmt.Println(errors.Is(err, sema.ErrFull), errors.Is(err, sema.ErrClosed))
	paused.Resize(1)
	p, err := paused.TryAcquire(ctx, 1)
	fmt.Println(p.Held(), err)
	if err := paused.Close(); err != nil {
		fmt.Println(err)
	}
	_, err = paused.TryAcquire(ctx, 1)
	fmt.Println(errors.Is(err, sema.ErrClosed))
	// Output:
	// true false
	// true <nil>
	// true
}

// A caller that can wait for two things at once: a permit, and the end of a deadline. A Ticket
// is a request that a select can wait for, as a channel is.
func Example_select() {
	s := sema.New(1)
	held, err := s.Acquire(ctx, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	work := func(stop <-chan struct{}) string {
		t := s.Request(1)
		defer t.Cancel()
		select {
		case <-t.Ready():
			p, err := t.Permit()
			if err != nil {
				return err.Error()
			}
			defer p.Release()
			return "worked"
		case <-stop:
			return "stopped"
		}
	}
	stop := make(chan struct{})
	close(stop)
	fmt.Println(work(stop), "- waiting:", s.Stats().Waiters)
	held.Release()
	fmt.Println(work(nil), "- in use:", s.Stats().InUse)
	// Output:
	// stopped - waiting: 0
	// worked - in use: 0
}

// TestQuestion_FairServesInOrder: a fair semaphore serves its waiters in the order in which they
// came, whatever their weights.
func TestQuestion_FairServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(2)
		held := must(t, s, 2)
		var mu sync.Mutex
		var served []int64
		var all sync.WaitGroup
		for _, weight := range []int64{2, 1, 2, 1} {
			all.Go(func() {
				p := must(t, s, weight)
				mu.Lock()
				served = append(served, weight)
				mu.Unlock()
				time.Sleep(time.Second)
				p.Release()
			})
			synctest.Wait() // it is queued before the next one comes
		}
		held.Release()
		all.Wait()
		if want := []int64{2, 1, 2, 1}; !slices.Equal(served, want) {
			t.Errorf("served %v, want %v", served, want)
		}
	})
}

// TestQuestion_UnfairLetsArrivalsOvertake: with waiters in the queue, the caller that has just
// released can acquire again if the semaphore is Unfair, and never if it is Fair.
func TestQuestion_UnfairLetsArrivalsOvertake(t *testing.T) {
	overtakes := func(order sema.Order) (n int) {
		for range 200 {
			s := sema.New(1, order)
			held := must(t, s, 1)
			done := make(chan struct{})
			go func() {
				defer close(done)
				must(t, s, 1).Release()
			}()
			for s.Stats().Waiters == 0 {
				time.Sleep(10 * time.Microsecond)
			}
			held.Release()
			if p, err := s.TryAcquire(t.Context(), 1); err == nil {
				if s.Stats().Waiters > 0 {
					n++
				}
				p.Release()
			}
			<-done
		}
		return n
	}
	if n := overtakes(sema.Fair); n != 0 {
		t.Errorf("Fair: %d overtakes", n)
	}
	if n := overtakes(sema.Unfair); n == 0 {
		t.Error("Unfair: no caller overtook the waiter in 200 rounds")
	}
}

// TestQuestion_HeavyWaiterIsServed: a caller of 50 permits comes while a hundred callers acquire
// single ones again and again. Fair serves it in its turn, after at most one hold. Unfair has
// no order, and hands permits to a waiter that has waited for a millisecond.
func TestQuestion_HeavyWaiterIsServed(t *testing.T) {
	for _, order := range []sema.Order{sema.Fair, sema.Unfair} {
		synctest.Test(t, func(t *testing.T) {
			s := sema.New(50, order)
			stop, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 37 * time.Microsecond) // out of step
					for {
						p, err := s.Acquire(stop, 1)
						if err != nil {
							return
						}
						time.Sleep(10 * time.Millisecond)
						p.Release()
					}
				})
			}
			time.Sleep(time.Second)
			start := time.Now()
			p := must(t, s, 50)
			if waited := time.Since(start); waited > 100*time.Millisecond {
				t.Errorf("%v: waited %v", order, waited)
			}
			p.Release()
			cancel()
			all.Wait()
		})
	}
}

// TestQuestion_CancelledWaiterCostsNothing: a waiter that is cancelled leaves the queue, the
// count stays, and those behind it are served.
func TestQuestion_CancelledWaiterCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(2)
		held := must(t, s, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, err := s.Acquire(ctx, 2) // the head of the queue, too heavy for now
			if err == nil || err.Error() != "user left" {
				t.Errorf("%v, want the cause", err)
			}
		})
		synctest.Wait()
		served := false
		all.Go(func() { must(t, s, 1); served = true })
		synctest.Wait()
		if served {
			t.Error("a light waiter has overtaken a heavy one")
		}
		cancel(errors.New("user left"))
		synctest.Wait()
		if st := s.Stats(); !served || st.InUse != 2 || st.Waiters != 0 {
			t.Errorf("served %v, %+v", served, st)
		}
		held.Release()
		all.Wait()
	})
}

// TestQuestion_CancelRacingGrantLosesNothing: contexts end while permits are granted. Whichever
// side wins each race, all permits are there in the end.
func TestQuestion_CancelRacingGrantLosesNothing(t *testing.T) {
	s := sema.New(3)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				if p, err := s.Acquire(ctx, 1); err == nil {
					p.Release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	if st := s.Stats(); st.Free != 3 || st.InUse != 0 || st.Waiters != 0 {
		t.Errorf("%+v", st)
	}
}

// TestQuestion_ManyCanWait: a waiter is a parked goroutine and no thread. Ten thousand wait for
// one semaphore.
func TestQuestion_ManyCanWait(t *testing.T) {
	const waiters = 10_000
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(1)
		held := must(t, s, 1)
		var all sync.WaitGroup
		for range waiters {
			all.Go(func() { must(t, s, 1).Release() })
		}
		synctest.Wait()
		if n := s.Stats().Waiters; n != waiters {
			t.Errorf("%d waiters", n)
		}
		held.Release()
		all.Wait()
	})
}

// TestQuestion_FairBoundsTheLongestWait: 64 callers take turns on 8 permits, 1 ms each. With
// Fair each waits for 7 ms at most: the seven holds before its turn. With LIFO, which serves
// the newest, some wait as long as the load lasts.
func TestQuestion_FairBoundsTheLongestWait(t *testing.T) {
	longest := func(order sema.Order) (longest time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			s := sema.New(8, order)
			stop, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var mu sync.Mutex
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					for {
						start := time.Now()
						p, err := s.Acquire(stop, 1)
						mu.Lock()
						longest = max(longest, time.Since(start))
						mu.Unlock()
						if err != nil {
							return
						}
						time.Sleep(time.Millisecond)
						p.Release()
					}
				})
			}
			all.Wait()
		})
		return longest
	}
	if fair := longest(sema.Fair); fair > 7*time.Millisecond {
		t.Errorf("Fair: a caller waited for %v", fair)
	}
	if lifo := longest(sema.LIFO); lifo < 500*time.Millisecond {
		t.Errorf("LIFO: the longest wait was %v only", lifo)
	}
}

// must acquires, or fails the test.
func must(t *testing.T, g sema.Gate, n int64) sema.Permit {
	t.Helper()
	p, err := g.Acquire(context.WithoutCancel(t.Context()), n)
	if err != nil {
		t.Error(err)
	}
	return p
}
