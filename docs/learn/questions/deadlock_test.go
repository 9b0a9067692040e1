package questions_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
)

// A bounded buffer of three counters. The producer waits for room first, and for the mutex
// then. In the other order it holds the mutex while it waits for room, and no consumer can
// make room.
func Example_roomBeforeMutex() {
	empty, full, mutex := sema.NewCounter(0, 1), sema.NewCounter(1, 1), sema.NewCounter(1, 1)
	// The buffer is full. A producer in the wrong order:
	if err := mutex.Wait(ctx, 1); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("producer: mutex locked, room:", empty.TryWait(1))
	// A consumer:
	fmt.Println("consumer: item:", full.TryWait(1), "mutex:", mutex.TryWait(1))
	// Output:
	// producer: mutex locked, room: false
	// consumer: item: true mutex: false
}

// Five philosophers with a fork each, and none with two: the circle. Taking both at once, or
// admitting four to the table, leaves no circle.
func Example_diningPhilosophers() {
	forks := make([]*sema.Semaphore, 5)
	for i := range forks {
		forks[i] = sema.New(1)
	}
	var held []sema.Permit
	for _, left := range forks {
		p, err := left.TryAcquire(ctx, 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		held = append(held, p)
	}
	eating := 0
	for i := range forks {
		if _, err := forks[(i+1)%5].TryAcquire(ctx, 1); err == nil {
			eating++
		}
	}
	fmt.Println("one fork each, eating:", eating)
	for _, p := range held {
		p.Release()
	}

	var all sync.WaitGroup
	for i := range forks {
		all.Go(func() {
			for range 100 {
				p, err := sema.AcquireAll(ctx, sema.Want{Gate: forks[i], N: 1}, sema.Want{Gate: forks[(i+1)%5], N: 1})
				if err != nil {
					panic(err)
				}
				p.Release()
			}
		})
	}
	all.Wait()
	fmt.Println("both at once: all have eaten 100 times")
	// Output:
	// one fork each, eating: 0
	// both at once: all have eaten 100 times
}

// With an arbiter of four, one of those at the table has both neighbours' forks free.
func Example_arbiter() {
	table := classic.NewTable(5, classic.Arbiter)
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() {
			for range 100 {
				if err := sema.Do(ctx, table.Seat(i), 1, func(context.Context) error { return nil }); err != nil {
					panic(err)
				}
			}
		})
	}
	all.Wait()
	fmt.Println("all have eaten")
	// Output:
	// all have eaten
}

// runs counts the runs of TestQuestion_OppositeOrdersAreReported.
var runs atomic.Int64

// TestQuestion_OppositeOrdersAreReported: two semaphores that are acquired in both orders are
// reported once, before any goroutine waits for another.
func TestQuestion_OppositeOrdersAreReported(t *testing.T) {
	var reports []string
	observe := sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventInverted {
			reports = append(reports, e.Report)
		}
	}))
	run := runs.Add(1) // a pair of names is reported once in a process
	a := sema.New(1, sema.Name(fmt.Sprint("a", run)), sema.Diagnose(sema.DiagnoseFull), observe)
	b := sema.New(1, sema.Name(fmt.Sprint("b", run)), sema.Diagnose(sema.DiagnoseFull), observe)
	both := func(first, second *sema.Semaphore) {
		p := must(t, first, 1)
		must(t, second, 1).Release()
		p.Release()
	}
	both(a, b)
	both(b, a)
	if len(reports) != 1 || !strings.Contains(reports[0], "deadlock_test.go") {
		t.Errorf("%d reports: %q", len(reports), reports)
	}
}

// TestQuestion_DeadlockIsReported: two goroutines that wait for each other are reported as a
// suspected deadlock, with both stacks, after they have waited for a second.
func TestQuestion_DeadlockIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := make(chan string, 2)
		observe := sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventDeadlocked {
				select {
				case reported <- e.Report:
				default:
				}
			}
		}))
		a := sema.New(1, sema.Name("a"), sema.Diagnose(sema.DiagnoseFull), observe)
		b := sema.New(1, sema.Name("b"), sema.Diagnose(sema.DiagnoseFull), observe)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the way out
		defer cancel()
		var all sync.WaitGroup
		for _, order := range [][2]*sema.Semaphore{{a, b}, {b, a}} {
			all.Go(func() {
				p := must(t, order[0], 1)
				defer p.Release()
				time.Sleep(time.Millisecond) // the other one has its first permit, too
				if q, err := order[1].Acquire(ctx, 1); err == nil {
					q.Release()
				}
			})
		}
		start := time.Now()
		report := <-reported
		if waited := time.Since(start); waited > 10*time.Second || strings.Count(report, "deadlock_test.go") < 2 {
			t.Errorf("after %v: %s", waited, report)
		}
		cancel()
		all.Wait()
	})
}

// TestQuestion_AcquiringTwiceWaitsForItself: no lock of Sema is re-entrant. A goroutine that
// acquires the only permit twice waits for itself; a bound on the wait ends that.
func TestQuestion_AcquiringTwiceWaitsForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(1, sema.MaxWait(5*time.Second))
		p := must(t, s, 1)
		defer p.Release()
		if _, err := s.Acquire(t.Context(), 1); !errors.Is(err, sema.ErrTimeout) {
			t.Errorf("%v, want a timeout", err)
		}
	})
}
