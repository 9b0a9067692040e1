package sema_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema"
)

func Example() {
	db := sema.New(2, sema.Name("db")) // at most two queries at once
	var workers sync.WaitGroup
	for range 10 {
		workers.Go(func() {
			permit, err := db.Acquire(context.Background(), 1)
			if err != nil {
				return
			}
			defer permit.Release()
			// query
		})
	}
	workers.Wait()
	fmt.Println(db.Stats().InUse, "in use")
	// Output: 0 in use
}

func ExampleSemaphore_Acquire() {
	memory := sema.New(1024, sema.Name("memory MB"))
	permit, err := memory.Acquire(context.Background(), 300)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer permit.Release()
	fmt.Println(memory.Stats().Free, "MB left")

	_, err = memory.Acquire(context.Background(), 2048)
	fmt.Println(err)
	// Output:
	// 724 MB left
	// sema: "memory MB": acquire 2048 of 1024 permits: larger than capacity
}

// A wait is bounded by its context.
func ExampleSemaphore_Acquire_timeout() {
	s := sema.New(1)
	held, _ := s.Acquire(context.Background(), 1)
	defer held.Release()

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := s.Acquire(ctx, 1)
	fmt.Println(err)
	// Output: context deadline exceeded
}

func ExampleSemaphore_TryAcquire() {
	s := sema.New(1, sema.Name("uploads"))
	first, _ := s.TryAcquire(context.Background(), 1)
	defer first.Release()

	if _, err := s.TryAcquire(context.Background(), 1); errors.Is(err, sema.ErrFull) {
		fmt.Println("503: busy, try later")
	}
	// Output: 503: busy, try later
}

func ExampleSemaphore_TryAcquireFree() {
	s := sema.New(10)
	held, _ := s.Acquire(context.Background(), 3)
	defer held.Release()

	rest, _ := s.TryAcquireFree(context.Background()) // all that are free now
	defer rest.Release()
	fmt.Println(rest.Weight())
	// Output: 7
}

// A select waits for a ticket together with other channels.
func ExampleSemaphore_Request() {
	s := sema.New(1)
	held, _ := s.Acquire(context.Background(), 1)

	ticket := s.Request(1)
	defer ticket.Cancel() // releases a permit that was never taken
	jobs := make(chan string, 1)
	jobs <- "a job"
	for range 2 {
		select {
		case job := <-jobs:
			fmt.Println("got", job)
			held.Release()
		case <-ticket.Ready():
			permit, err := ticket.Permit()
			fmt.Println("got a permit", err)
			permit.Release()
		}
	}
	// Output:
	// got a job
	// got a permit <nil>
}

func ExampleSemaphore_Resize() {
	s := sema.New(5)
	held, _ := s.Acquire(context.Background(), 4)

	s.Resize(2) // revokes nothing
	stats := s.Stats()
	fmt.Println(stats.InUse, "of", stats.Capacity, "in use, debt", stats.Debt)
	held.Release()
	stats = s.Stats()
	fmt.Println(stats.InUse, "of", stats.Capacity, "in use, debt", stats.Debt)
	// Output:
	// 4 of 2 in use, debt 2
	// 0 of 2 in use, debt 0
}

// The counters only grow, so that the rate of change of each can be graphed.
func ExampleSemaphore_Stats_counters() {
	s := sema.New(2)
	ctx := context.Background()
	sema.Do(ctx, s, 1, func(context.Context) error {
		s.TryAcquire(ctx, 2) //semavet:ignore the semaphore is full
		return nil
	})
	fmt.Printf("%+v\n", s.Stats().Counts)
	// Output:
	// {Acquired:1 Waited:0 TimedOut:0 Cancelled:0 Rejected:1 WaitTime:0s}
}

// Capacities often come from configuration and change while a program runs.
func ExampleSemaphore_Resize_fromConfiguration() {
	limits := map[string]*sema.Semaphore{
		"db":  sema.New(10, sema.Name("db")),
		"gpu": sema.New(1, sema.Name("gpu")),
	}
	var config map[string]int64
	json.Unmarshal([]byte(`{"db": 40, "gpu": 2}`), &config)
	for name, capacity := range config {
		limits[name].Resize(capacity)
	}
	fmt.Println(limits["db"].Stats().Capacity, limits["gpu"].Stats().Capacity)
	// Output: 40 2
}

func ExampleSemaphore_Forget() {
	connections := sema.New(3)
	permit, _ := connections.Acquire(context.Background(), 1)
	connections.Forget(permit) // the server closed this connection for good
	fmt.Println(connections.Stats().Capacity)
	// Output: 2
}

// On shutdown, reject new requests and wait for those in flight.
func ExampleSemaphore_Drain() {
	requests := sema.New(100, sema.Name("requests"))
	slow, _ := requests.Acquire(context.Background(), 1)

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(requests.Drain(ctx))
	_, err := requests.Acquire(context.Background(), 1)
	fmt.Println(errors.Is(err, sema.ErrDraining))
	slow.Release()
	fmt.Println(requests.Drain(context.Background()))
	// Output:
	// sema: "requests": drain: context deadline exceeded: 1 of 100 permits are still held
	// true
	// <nil>
}

func ExampleSemaphore_Resume() {
	s := sema.New(1)
	s.Drain(context.Background())
	s.Resume()
	permit, err := s.Acquire(context.Background(), 1)
	fmt.Println(err)
	permit.Release()
	// Output: <nil>
}

func ExampleSemaphore_WaitIdle() {
	s := sema.New(4)
	for range 4 {
		permit, _ := s.Acquire(context.Background(), 1)
		go permit.Release()
	}
	s.WaitIdle(context.Background())
	fmt.Println(s.Stats().InUse)
	// Output: 0
}

func ExampleSemaphore_Close() {
	s := sema.New(1)
	s.Close()
	_, err := s.Acquire(context.Background(), 1)
	fmt.Println(err)
	// Output: sema: acquire 1 of 1 permits: closed
}

func ExampleSemaphore_Stats() {
	s := sema.New(8)
	permit, _ := s.Acquire(context.Background(), 6)
	defer permit.Release()
	st := s.Stats()
	fmt.Printf("%d of %d in use, %d waiting\n", st.InUse, st.Capacity, st.Waiters)
	// Output: 6 of 8 in use, 0 waiting
}

// Every copy of a permit is the same permit.
func ExamplePermit_Release() {
	s := sema.New(2)
	permit, _ := s.Acquire(context.Background(), 1)
	alias := permit
	permit.Release()
	alias.Release() // has no effect
	fmt.Println(s.Stats().Free)
	// Output: 2
}

func ExamplePermit_Split() {
	s := sema.New(10)
	batch, _ := s.Acquire(context.Background(), 10)
	first, rest, err := batch.Split(4) // two parts that are released at different times
	fmt.Println(first.Weight(), rest.Weight(), err)
	first.Release()
	fmt.Println(s.Stats().Free)
	rest.Release()
	// Output:
	// 4 6 <nil>
	// 4
}

func ExamplePermit_Context() {
	s := sema.New(1)
	permit, _ := s.Acquire(context.Background(), 1)
	defer permit.Release()
	ctx, cancel := permit.Context(context.Background())
	defer cancel()
	// Use ctx for the work: it ends if the permit is lost, as a fleet lease can be. What
	// is acquired with it is known to be acquired by this holder.
	fmt.Println(len(sema.Held(ctx)), ctx.Err())
	// Output: 1 <nil>
}

// A custom gate that grants no permits on weekends.
func ExampleNewPermit() {
	gate := officeHours{sema.New(3), time.Saturday}
	_, err := gate.Acquire(context.Background(), 1)
	fmt.Println(err)
	gate.today = time.Monday
	err = sema.Do(context.Background(), gate, 1, func(context.Context) error {
		fmt.Println("at work")
		return nil
	})
	fmt.Println(err)
	// Output:
	// closed on Saturday
	// at work
	// leaving
	// <nil>
}

type officeHours struct {
	inner *sema.Semaphore
	today time.Weekday
}

func (g officeHours) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	if g.today == time.Saturday || g.today == time.Sunday {
		return sema.Permit{}, fmt.Errorf("closed on %v", g.today)
	}
	p, err := g.inner.Acquire(ctx, n)
	if err != nil {
		return sema.Permit{}, err
	}
	return sema.NewPermit(n, officeLease{p}), nil
}

func (g officeHours) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	return g.Acquire(ctx, n)
}

type officeLease struct{ inner sema.Permit }

func (d officeLease) Release() {
	fmt.Println("leaving")
	d.inner.Release()
}

// Do acquires a permit, runs the function and releases the permit, whatever happens.
func ExampleDo() {
	s := sema.New(1)
	err := sema.Do(context.Background(), s, 1, func(ctx context.Context) error {
		return errors.New("query failed")
	})
	fmt.Println(err, s.Stats().InUse)
	// Output: query failed 0
}

// A job that needs a GPU and memory holds neither while it waits for the other.
func ExampleAcquireAll() {
	gpus, memory := sema.New(2, sema.Name("gpu")), sema.New(64, sema.Name("GB"))
	permit, err := sema.AcquireAll(context.Background(),
		sema.Want{Gate: gpus, N: 1},
		sema.Want{Gate: memory, N: 48})
	fmt.Println(err, gpus.Stats().Free, memory.Stats().Free)
	permit.Release()
	fmt.Println(gpus.Stats().Free, memory.Stats().Free)
	// Output:
	// <nil> 1 16
	// 2 64
}

// To replace golang.org/x/sync/semaphore, change the import and nothing else.
func ExampleWeighted() {
	sem := sema.NewWeighted(10) // semaphore.NewWeighted with the import renamed
	if err := sem.Acquire(context.Background(), 3); err != nil {
		return
	}
	defer sem.Release(3)
	fmt.Println(sem.TryAcquire(8), sem.TryAcquire(7))
	// Output: false true
}

// A counter that starts at zero is a signal: one side waits, the other posts.
func ExampleCounter() {
	ready := sema.NewCounter(0, 1)
	go ready.Post(1)
	fmt.Println(ready.Wait(context.Background(), 1))
	fmt.Println(sema.NewCounter(3, 3).Post(1))
	// Output:
	// <nil>
	// sema: post 1 of 3 permits: more released than acquired: the counter is at 3
}

// A producer posts, and closes the counter when it is done. A consumer takes batches
// until nothing is left.
func ExampleCounter_WaitUpTo() {
	ready := sema.NewCounter(0, 100)
	ready.Post(7)
	ready.Close()
	for {
		n, err := ready.WaitUpTo(context.Background(), 1, 3)
		if errors.Is(err, sema.ErrClosed) {
			fmt.Println("done")
			return
		}
		fmt.Println("batch of", n)
	}
	// Output:
	// batch of 3
	// batch of 3
	// batch of 1
	// done
}

// Consumers can still take what a closed counter has left.
func ExampleCounter_Close() {
	jobs := sema.NewCounter(2, 10, sema.Name("jobs"))
	jobs.Close()
	for range 3 {
		fmt.Println(jobs.Wait(context.Background(), 1))
	}
	// Output:
	// <nil>
	// <nil>
	// sema: "jobs": wait 1 of 10 permits: closed
}

func ExampleStriped() {
	inFlight := sema.NewStriped(10_000) // used by every core, seldom exhausted
	permit, err := inFlight.Acquire(context.Background(), 1)
	fmt.Println(err)
	permit.Release()
	// Output: <nil>
}

func ExampleSpin() {
	var guard sema.Spin // eight bytes, ready to use
	if err := guard.Acquire(context.Background()); err == nil {
		// a few nanoseconds of work
		guard.Release()
	}
	fmt.Println(guard.InUse())
	// Output: 0
}

// Bounds on the number of waiters and on their wait suit anything that serves
// requests.
func ExampleNew_bounded() {
	db := sema.New(1, sema.Name("db"), sema.MaxWaiters(100), sema.MaxWait(time.Millisecond))
	held, _ := db.Acquire(context.Background(), 1)
	defer held.Release()
	_, err := db.Acquire(context.Background(), 1)
	fmt.Println(errors.Is(err, sema.ErrTimeout), errors.Is(err, context.DeadlineExceeded))
	// Output: true true
}

func ExampleObserve() {
	waited := 0
	s := sema.New(1, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventRejected {
			waited++
			fmt.Println(e.Kind, e.Weight)
		}
	})))
	s.TryAcquire(context.Background(), 5)
	// Output: rejected 5
}

// LogTo logs exhaustion and permits held too long, for operators.
func ExampleLogTo() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	db := sema.New(1, sema.Name("db"), sema.Observe(sema.LogTo(logger)))
	for range 1000 {
		permit, _ := db.Acquire(context.Background(), 1)
		permit.Release()
	}
	// Output:
	// level=WARN msg="sema: exhausted" semaphore=db
}

// WarnHold reports a permit that is held for longer than its work should take.
func ExampleWarnHold() {
	reported := make(chan struct{})
	s := sema.New(1, sema.Name("db"), sema.WarnHold(time.Millisecond),
		sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventOverheld {
				fmt.Println(e.Kind, "at", strings.Split(e.Site, ":")[0] != "")
				close(reported)
			}
		})))
	permit, _ := s.Acquire(context.Background(), 1)
	<-reported // the permit is still held
	permit.Release()
	// Output: overheld at true
}

// A debug page can list the held permits and their age.
func ExampleHolders() {
	s := sema.New(2, sema.Name("example"), sema.Diagnose(sema.DiagnoseFull))
	permit, _ := s.Acquire(context.Background(), 1)
	for _, h := range sema.Holders() {
		if h.Name == "example" {
			fmt.Println(h.Name, h.Weight, h.Site != "", h.Age >= 0)
		}
	}
	permit.Release()
	// Output: example 1 true true
}

// Contention lists the call sites that wait, the longest first.
func ExampleContention() {
	quiet := sema.ObserverFunc(func(sema.Event) {}) // without an observer, reports are logged
	s := sema.New(1, sema.Diagnose(sema.DiagnoseFull), sema.MaxWait(time.Millisecond), sema.Observe(quiet))
	held, _ := s.Acquire(context.Background(), 1)
	s.Acquire(context.Background(), 1)
	held.Release()
	worst := sema.Contention()[0]
	fmt.Println(worst.Waits > 0, worst.Total > 0, worst.Site != "")
	// Output: true true true
}
