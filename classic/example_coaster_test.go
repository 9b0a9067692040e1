package classic_test

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Roller coaster: the car runs only when it is full, and passengers board only after all have
// left it. Textbooks count the passengers under a mutex. A Counter needs none: the car waits
// for as many signals as it has seats.
func Example_rollerCoaster() {
	fmt.Println(run(rollerCoaster))
	// Output: 3 rides of 2
}

func rollerCoaster(k kit) *problem {
	const seats, rides = 2, 3
	board, aboard := k.counter("board", 0), k.counter("aboard", 0)
	unboard, ashore := k.counter("unboard", 0), k.counter("ashore", 0)
	var riding atomic.Int64
	full := 0 // rides with all seats taken
	p := &problem{
		invariant: func() bool { return riding.Load() <= seats },
		result:    func() string { return fmt.Sprintf("%d rides of %d", full, seats) },
	}
	p.add("car", func(ctx context.Context) error {
		for range rides {
			board.Post(seats)
			if err := aboard.Wait(ctx, seats); err != nil {
				return err
			}
			if riding.Load() == seats {
				full++
			}
			unboard.Post(seats)
			if err := ashore.Wait(ctx, seats); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range seats * rides {
		p.add(fmt.Sprint("passenger ", i), func(ctx context.Context) error {
			if err := board.Wait(ctx, 1); err != nil {
				return err
			}
			riding.Add(1)
			aboard.Post(1)
			if err := unboard.Wait(ctx, 1); err != nil {
				return err
			}
			riding.Add(-1)
			ashore.Post(1)
			return nil
		})
	}
	return p
}
