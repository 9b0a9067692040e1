package classic_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
)

// Two producers and two consumers share a buffer of eight items. Producers wait while it is
// full, consumers while it is empty, and Close ends the consumers when all is done.
func ExampleBuffer() {
	ctx := context.Background()
	jobs := classic.NewBuffer[int](8, sema.Name("jobs"))
	var producers, consumers sync.WaitGroup
	for p := range 2 {
		producers.Go(func() {
			for i := range 16 {
				if err := jobs.Put(ctx, 16*p+i); err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	sums := make([]int, 2)
	for c := range sums {
		consumers.Go(func() {
			for job, err := range jobs.All(ctx) {
				if err != nil {
					fmt.Println(err)
					return
				}
				sums[c] += job
			}
		})
	}
	producers.Wait()
	jobs.Close()
	consumers.Wait()
	fmt.Println(sums[0]+sums[1], jobs)
	// Output: 496 buffer "jobs": 0 of 8 items, 0 producers and 0 consumers waiting, closed
}

// A consumer that writes to a database takes what is there, up to a hundred rows: one
// transaction for each batch, and no delay while there is little to do.
func ExampleBuffer_TakeUpTo() {
	ctx := context.Background()
	rows := classic.NewBuffer[string](1000)
	added, err := rows.PutAll(ctx, []string{"a", "b", "c"})
	fmt.Println(added, err)
	batch := make([]string, 100)
	n, err := rows.TakeUpTo(ctx, batch)
	fmt.Println(batch[:n], err)
	// Output:
	// 3 <nil>
	// [a b c] <nil>
}

// A producer that must not wait drops what does not fit, or waits for a bounded time.
func ExampleBuffer_TryPut() {
	logs := classic.NewBuffer[string](1, sema.Name("logs"), sema.MaxWait(time.Millisecond))
	fmt.Println(logs.TryPut("first"), logs.TryPut("second"))
	err := logs.Put(context.Background(), "third")
	fmt.Println(errors.Is(err, sema.ErrTimeout), sema.Reason(err))
	// Output:
	// true false
	// true timeout
}

// A worker takes from several queues, whichever has an item.
func ExampleTakeAny() {
	ctx := context.Background()
	mails, reports := classic.NewBuffer[string](8), classic.NewBuffer[string](8)
	reports.Put(ctx, "report")
	job, from, err := classic.TakeAny(ctx, mails, reports)
	fmt.Println(job, from, err)
	// Output: report 1 <nil>
}

// Readers of a configuration share it. The writer that reloads it is alone, and waits at most
// for the readers that came before it.
func ExampleRWLock() {
	ctx := context.Background()
	config := map[string]string{"color": "red"}
	lock := classic.NewRWLock(classic.FairRW, sema.Name("config"), sema.MaxWait(time.Second))
	err := sema.Do(ctx, lock.Writer(), 1, func(context.Context) error {
		config["color"] = "blue"
		return nil
	})
	fmt.Println(err)
	err = sema.Do(ctx, lock.Reader(), 1, func(context.Context) error {
		fmt.Println(config["color"], lock)
		return nil
	})
	fmt.Println(err)
	// Output:
	// <nil>
	// blue lock "config": FairRW, held by readers (1), 0 readers and 0 writers waiting
	// <nil>
}

// A cache prefers readers: they never wait for a writer that waits. Here a reader comes while
// another one reads and a writer would have to wait.
func ExampleNewRWLock_preferReaders() {
	ctx := context.Background()
	cache := classic.NewRWLock(classic.PreferReaders)
	first, _ := cache.Reader().Acquire(ctx, 1)
	_, err := cache.Writer().TryAcquire(ctx, 1)
	fmt.Println(errors.Is(err, sema.ErrFull))
	second, err := cache.Reader().TryAcquire(ctx, 1)
	fmt.Println(err)
	first.Release()
	second.Release()
	// Output:
	// true
	// <nil>
}

// A snapshot of a database is read by at most two reports at a time.
func ExampleMaxReaders() {
	ctx := context.Background()
	snapshot := classic.NewRWLock(classic.PreferWriters, classic.MaxReaders(2))
	a, _ := snapshot.Reader().Acquire(ctx, 1)
	b, _ := snapshot.Reader().Acquire(ctx, 1)
	_, err := snapshot.Reader().TryAcquire(ctx, 1)
	fmt.Println(errors.Is(err, sema.ErrFull))
	a.Release()
	b.Release()
	// Output: true
}

// Two goroutines exchange their buffers: the full one for the empty one.
func ExampleRendezvous() {
	ctx := context.Background()
	swap := classic.NewRendezvous[[]int]()
	done := make(chan struct{})
	go func() {
		defer close(done)
		empty, err := swap.Meet(ctx, []int{1, 2, 3})
		fmt.Println("the writer continues with", len(empty), "items", err)
	}()
	full, err := swap.Meet(ctx, nil)
	<-done
	fmt.Println("the reader has", full, err)
	// Output:
	// the writer continues with 0 items <nil>
	// the reader has [1 2 3] <nil>
}

// Workers compute the next state from the current one, in phases. The last one to come
// exchanges both, while the others wait for the second barrier.
func ExampleBarrier() {
	ctx := context.Background()
	current, next := []int{0, 0, 8, 0}, make([]int, 4)
	phase := classic.NewBarrier(len(current), sema.Name("heat"))
	var wg sync.WaitGroup
	for i := range current {
		wg.Go(func() {
			for range 2 {
				n := len(current)
				next[i] = (current[(i+n-1)%n] + current[(i+1)%n]) / 2
				last, err := phase.Wait(ctx) // all have computed
				if err != nil {
					return // another worker gave up
				}
				if last {
					current, next = next, current
				}
				if _, err := phase.Wait(ctx); err != nil { // all see the new state
					return
				}
			}
		})
	}
	wg.Wait()
	fmt.Println(current, phase)
	// Output: [4 0 4 0] barrier "heat": 0 of 4 parties waiting, 4 phases
}

// A worker that gives up breaks the barrier: the others know at once.
func ExampleBarrier_Reset() {
	phase := classic.NewBarrier(2, sema.Name("phase"))
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("disk full"))
	_, err := phase.Wait(ctx)
	fmt.Println(err)
	_, err = phase.Wait(context.Background())
	fmt.Println(err, errors.Is(err, classic.ErrBroken))
	phase.Reset()
	fmt.Println(phase)
	// Output:
	// disk full
	// sema: "phase": wait: barrier broken: a party gave up: disk full true
	// barrier "phase": 0 of 2 parties waiting, 0 phases
}

// An operator pauses workers between two jobs.
func ExampleTurnstile() {
	ctx := context.Background()
	pause := classic.NewTurnstile(sema.Name("pause"))
	done := make(chan struct{})
	pause.Shut()
	go func() {
		defer close(done)
		if err := pause.Pass(ctx); err == nil { // before each job
			fmt.Println("works")
		}
	}()
	fmt.Println("shut")
	pause.Open()
	<-done
	fmt.Println(pause)
	// Output:
	// shut
	// works
	// turnstile "pause": open, 0 waiting
}

// Five philosophers eat, each with the two forks next to it. With Naive in place of
// BothOrNone this program could stop for ever.
func ExampleTable() {
	ctx := context.Background()
	table := classic.NewTable(5, classic.BothOrNone, sema.Name("dinner"))
	meals := make([]int, table.Seats())
	var wg sync.WaitGroup
	for i := range meals {
		wg.Go(func() {
			for range 100 {
				err := sema.Do(ctx, table.Seat(i), 1, func(context.Context) error {
					meals[i]++
					return nil
				})
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	fmt.Println(slices.Max(meals), slices.Min(meals), table)
	// Output: 100 100 table "dinner": 5 philosophers, BothOrNone
}
