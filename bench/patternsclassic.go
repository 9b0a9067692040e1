package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/sema-go/sema/classic"
)

// classicScenarios compare the bounded buffer of package classic with a channel of the same
// size. A channel has no batches: it moves the items of a batch one by one. An operation is
// one item from a producer to a consumer.
func classicScenarios() []scenario {
	var all []scenario
	for _, goroutines := range []int{1, 4} {
		for _, batch := range []int{1, 32} {
			limit := 1.5
			if batch > 1 {
				limit = 0.4
			}
			all = append(all, scenario{
				name:  fmt.Sprintf("classic-buffer-%dx%d-batch-%d", goroutines, goroutines, batch),
				about: fmt.Sprintf("%d producers and %d consumers, batches of %d, capacity %d", goroutines, goroutines, batch, bufferCapacity),
				impls: []impl{
					{semaBuffer, func() sample { return bufferItems(goroutines, batch) }},
					{goChannel, func() sample { return channelItems(goroutines, batch) }},
					{selectChannel, func() sample { return selectItems(goroutines, batch) }},
				},
				targets: []target{
					{impl: semaBuffer, rival: goChannel, limit: limit},
					{impl: semaBuffer, limit: 0.01, value: func(r row) float64 { return r.AllocsOp }, unit: "allocs/op"},
				},
			})
		}
	}
	return all
}

const (
	semaBuffer, goChannel, selectChannel = "sema/classic.Buffer", "channel", "channel, select with a context"

	bufferCapacity = 128
	bufferTotal    = 1 << 20
)

// moveItems runs producers and consumers, each of which moves its share of the items in
// batches.
func moveItems(goroutines, batch int, put, take func(ctx context.Context, items []int)) sample {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	batches := bufferTotal / goroutines / batch
	return measure(goroutines*batches*batch, func() {
		var wg sync.WaitGroup
		for range goroutines {
			for _, move := range []func(context.Context, []int){put, take} {
				wg.Go(func() {
					items := make([]int, batch)
					for range batches {
						move(ctx, items)
					}
				})
			}
		}
		wg.Wait()
	})
}

// bufferItems moves items through a Buffer. A batch of one uses Put and Take.
func bufferItems(goroutines, batch int) sample {
	b := classic.NewBuffer[int](bufferCapacity)
	if batch == 1 {
		return moveItems(goroutines, batch,
			func(ctx context.Context, items []int) { must(b.Put(ctx, items[0])) },
			func(ctx context.Context, items []int) {
				_, err := b.Take(ctx)
				must(err)
			})
	}
	return moveItems(goroutines, batch,
		func(ctx context.Context, items []int) {
			_, err := b.PutAll(ctx, items)
			must(err)
		},
		func(ctx context.Context, items []int) {
			for len(items) > 0 {
				n, err := b.TakeUpTo(ctx, items)
				must(err)
				items = items[n:]
			}
		})
}

// channelItems moves items through a channel, without a context.
func channelItems(goroutines, batch int) sample {
	c := make(chan int, bufferCapacity)
	return moveItems(goroutines, batch,
		func(_ context.Context, items []int) {
			for _, v := range items {
				c <- v
			}
		},
		func(_ context.Context, items []int) {
			for i := range items {
				items[i] = <-c
			}
		})
}

// selectItems moves items through a channel, and stops when the context ends, as a Buffer
// does.
func selectItems(goroutines, batch int) sample {
	c := make(chan int, bufferCapacity)
	return moveItems(goroutines, batch,
		func(ctx context.Context, items []int) {
			for _, v := range items {
				select {
				case c <- v:
				case <-ctx.Done():
					return
				}
			}
		},
		func(ctx context.Context, items []int) {
			for i := range items {
				select {
				case items[i] = <-c:
				case <-ctx.Done():
					return
				}
			}
		})
}
