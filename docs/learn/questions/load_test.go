package questions_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// TestQuestion_ThroughputIsCapacityOverHold: ten permits that are held for 100 ms each serve a
// hundred callers a second, however many callers there are. Here a hundred callers wait for at
// most one second each.
func TestQuestion_ThroughputIsCapacityOverHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(10, sema.MaxWait(time.Second))
		load, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var served, timedOut atomic.Int64
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for load.Err() == nil {
					p, err := s.Acquire(load, 1)
					switch {
					case errors.Is(err, sema.ErrTimeout):
						timedOut.Add(1)
					case err == nil:
						time.Sleep(100 * time.Millisecond)
						p.Release()
						served.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := served.Load(); n < 1000 || n > 1010 {
			t.Errorf("%d callers were served in 10 s", n)
		}
		if n := timedOut.Load(); n != 0 {
			t.Errorf("%d callers timed out", n) // each waits for nine holds: 0.9 s
		}
	})
}

// TestQuestion_MoreCallersTimeOut: with 150 callers in place of 100 the throughput stays, and the
// rest of the callers time out.
func TestQuestion_MoreCallersTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(10, sema.MaxWait(time.Second))
		var served, timedOut atomic.Int64
		var all sync.WaitGroup
		for range 150 { // all at once, each one time
			all.Go(func() {
				p, err := s.Acquire(context.Background(), 1)
				if err != nil {
					timedOut.Add(1)
					return
				}
				time.Sleep(100 * time.Millisecond)
				p.Release()
				served.Add(1)
			})
		}
		all.Wait()
		if served.Load()+timedOut.Load() != 150 || served.Load() < 100 || served.Load() > 110 {
			t.Errorf("%d served, %d timed out", served.Load(), timedOut.Load())
		}
	})
}

// TestQuestion_RateFromCounterAndTimer: a counter that a timer refills is a token bucket. With a
// burst of 10 and 100 a second, 110 calls take one second. package rate has the same bound
// without a timer.
func TestQuestion_RateFromCounterAndTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 10
		tokens := sema.NewCounter(burst, burst)
		refill := time.NewTicker(10 * time.Millisecond)
		stop := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-refill.C:
					_ = tokens.Post(1) // ErrOverRelease: the bucket is full
				case <-stop:
					return
				}
			}
		}()
		start := time.Now()
		for range 110 {
			if err := tokens.Wait(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("counter and timer: 110 calls took %v", took)
		}
		refill.Stop()
		close(stop)
		<-ended

		limit := rate.New(100, time.Second, rate.Burst(burst))
		start = time.Now()
		for range 110 {
			if _, err := limit.Acquire(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("package rate: 110 calls took %v", took)
		}
	})
}

// Little's law: what is in use on average is the rate of arrivals times the mean hold. A
// hundred connections whose queries take 200 ms serve 500 queries a second. A wait of 5 ms is
// a fortieth of the query: look at the queries first.
func Example_littlesLaw() {
	const capacity, hold = 100, 200 * time.Millisecond
	throughput := capacity / hold.Seconds()
	fmt.Printf("at most %.0f queries a second\n", throughput)
	for _, arrivals := range []float64{250, 450, 600} {
		inUse := arrivals * hold.Seconds()
		fmt.Printf("%.0f arrivals a second need %.0f connections: %.0f %%\n", arrivals, inUse, 100*inUse/capacity)
	}
	// Output:
	// at most 500 queries a second
	// 250 arrivals a second need 50 connections: 50 %
	// 450 arrivals a second need 90 connections: 90 %
	// 600 arrivals a second need 120 connections: 120 %
}

// A cap for each tenant under a cap for all: acquire the narrow one first. A tenant at its cap
// waits there, and holds none of the shared permits.
func Example_tenantThenGlobal() {
	global := sema.New(3, sema.Name("global"))
	noisy := sema.New(1, sema.Name("noisy"), sema.MaxWaiters(0))
	quiet := sema.New(1, sema.Name("quiet"), sema.MaxWaiters(0))
	call := func(tenant *sema.Semaphore, fn func()) error {
		return sema.Do(ctx, tenant, 1, func(ctx context.Context) error {
			return sema.Do(ctx, global, 1, func(context.Context) error { fn(); return nil })
		})
	}
	err := call(noisy, func() {
		fmt.Println("noisy again:", sema.Reason(call(noisy, nil)), "- global in use:", global.Stats().InUse)
		_ = call(quiet, func() { fmt.Println("quiet works - global in use:", global.Stats().InUse) })
	})
	fmt.Println(err, global.Stats().InUse)
	// Output:
	// noisy again: queue-full - global in use: 1
	// quiet works - global in use: 2
	// <nil> 0
}

// Free, paid and internal users of one capacity: guaranteed minima, and a rest that free users
// never get. One queue with shares replaces a semaphore for each class and one for the rest.
func Example_classes() {
	q := wfq.New(10)
	q.Set("free", wfq.Share{Min: 2, Max: 2})
	q.Set("paid", wfq.Share{Min: 5})
	q.Set("internal", wfq.Share{Min: 3})
	most := func(class string) (n int) {
		for {
			p, err := q.Class(class).TryAcquire(ctx, 1)
			if err != nil {
				return n
			}
			defer p.Release()
			n++
		}
	}
	fmt.Println("free alone:", most("free"))
	fmt.Println("paid alone:", most("paid"))
	// Output:
	// free alone: 2
	// paid alone: 10
}

// The breaker is asked before the queue: a call to a dependency that is away takes no permit.
func Example_breakerFirst() {
	breaker := admit.NewBreaker(admit.BreakerConfig{})
	q := wfq.New(50)
	c := admit.New(admit.Config{
		Name: "api", Queue: q, Breaker: breaker,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	breaker.Trip() // its calls failed, or an operator knows that it is away
	_, err := c.Admit(ctx, admit.Request{})
	fmt.Println(sema.Reason(err), "- permits acquired:", q.Stats().Acquired)
	// Output:
	// breaker - permits acquired: 0
}

// A semaphore bounds how many connections are open at once, and not how often one is opened.
// A pool does both.
func Example_churn() {
	opened := 0
	open := func(context.Context) (int, error) { opened++; return opened, nil }

	s := sema.New(10)
	for range 100 {
		_ = sema.Do(ctx, s, 1, func(ctx context.Context) error { _, err := open(ctx); return err })
	}
	fmt.Println("opened with a semaphore of 10:", opened)

	opened = 0
	connections := pool.New(pool.Config[int]{Size: 10, Open: open})
	defer connections.Close()
	for range 100 {
		_ = connections.Do(ctx, func(context.Context, pool.Item[int]) error { return nil })
	}
	fmt.Println("opened with a pool of 10:", opened)
	// Output:
	// opened with a semaphore of 10: 100
	// opened with a pool of 10: 1
}

// A million acquires of one permit, or a thousand of a thousand that are split: the work waits
// once for each batch.
func Example_batch() {
	s := sema.New(1000)
	p, err := s.Acquire(ctx, 1000) // waits once
	if err != nil {
		fmt.Println(err)
		return
	}
	first, rest, err := p.Split(1) // for one task that ends earlier
	if err != nil {
		fmt.Println(err)
		return
	}
	first.Release()
	fmt.Println("held:", rest.Weight(), "free:", s.Stats().Free)
	rest.Release()
	// Output:
	// held: 999 free: 1
}

// Contention is time, not a number of acquires. An observer receives the wait of each acquire.
func Example_measureWaits() {
	var waits, free atomic.Int64
	s := sema.New(1, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventAcquired && e.Wait > 0 {
			waits.Add(1)
		} else if e.Kind == sema.EventAcquired {
			free.Add(1)
		}
	})))
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	t := s.Request(1)
	p.Release()
	<-t.Ready()
	q, err := t.Permit()
	fmt.Println("at once:", free.Load(), "after a wait:", waits.Load(), err)
	q.Release()
	fmt.Println("counted without an observer, too:", s.Stats().Waited)
	// Output:
	// at once: 1 after a wait: 1 <nil>
	// counted without an observer, too: 1
}
