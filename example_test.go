package sema_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

func ExampleTicket_Cancel() {
	s := sema.New(1)
	ticket := s.Request(1)
	<-ticket.Ready()
	ticket.Cancel() // granted but never taken: the permit is released
	fmt.Println(s.Stats().InUse)
	// Output: 0
}

func ExampleMaxWaiters() {
	s := sema.New(1, sema.MaxWaiters(0)) // no caller waits
	held, _ := s.Acquire(context.Background(), 1)
	defer held.Release()
	_, err := s.Acquire(context.Background(), 1)
	fmt.Println(errors.Is(err, sema.ErrQueueFull))
	// Output: true
}

// A request that does not fit now may fit after a Resize.
func ExampleSemaphore_Resize_parkOversize() {
	s := sema.New(2, sema.ParkOversize)
	ticket := s.Request(5)
	s.Resize(8)
	<-ticket.Ready()
	permit, err := ticket.Permit()
	fmt.Println(permit.Weight(), err)
	permit.Release()
	// Output: 5 <nil>
}

// Unfair saves the goroutine switch of each hand-off. LIFO serves the newest waiter
// first under overload.
func ExampleNew_orders() {
	throughput := sema.New(8, sema.Unfair)
	freshest := sema.New(8, sema.LIFO)
	for _, s := range []*sema.Semaphore{throughput, freshest} {
		sema.Do(context.Background(), s, 1, func(context.Context) error { return nil })
	}
	fmt.Println(throughput.Stats().Free, freshest.Stats().Free)
	// Output: 8 8
}
