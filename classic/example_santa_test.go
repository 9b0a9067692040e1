package classic_test

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Santa Claus sleeps until all nine reindeer have returned, or three elves need help. Reindeer
// come first. While three elves get help, others wait.
func Example_santaClaus() {
	fmt.Println(run(santaClaus))
	// Output: 9 reindeer hitched, 6 elves helped
}

func santaClaus(k kit) *problem {
	const allReindeer, group, allElves = 9, 3, 6
	mu := k.mutex("workshop")
	santa, hitch, help, door := k.counter("santa", 0), k.counter("hitch", 0), k.counter("help", 0), k.counter("door", 1)
	reindeer, elves := 0, 0 // that need Santa; mu guards them
	var hitched, helped atomic.Int64
	p := &problem{
		invariant: func() bool { return elves <= group && (hitched.Load() == 0 || reindeer == 0) },
		result: func() string {
			return fmt.Sprintf("%d reindeer hitched, %d elves helped", hitched.Load(), helped.Load())
		},
	}
	p.add("Santa", func(ctx context.Context) error {
		for range 1 + allElves/group {
			if err := santa.Wait(ctx, 1); err != nil {
				return err
			}
			mu.Lock()
			if reindeer == allReindeer {
				reindeer = 0
				hitch.Post(allReindeer)
			} else {
				help.Post(group)
			}
			mu.Unlock()
		}
		return nil
	})
	for i := range allReindeer {
		p.add(fmt.Sprint("reindeer ", i), func(ctx context.Context) error {
			mu.Lock()
			if reindeer++; reindeer == allReindeer {
				santa.Post(1)
			}
			mu.Unlock()
			err := hitch.Wait(ctx, 1)
			hitched.Add(1)
			return err
		})
	}
	for i := range allElves {
		p.add(fmt.Sprint("elf ", i), func(ctx context.Context) error {
			if err := door.Wait(ctx, 1); err != nil {
				return err
			}
			mu.Lock()
			if elves++; elves == group {
				santa.Post(1) // the door stays shut
			} else {
				door.Post(1)
			}
			mu.Unlock()
			if err := help.Wait(ctx, 1); err != nil {
				return err
			}
			helped.Add(1)
			mu.Lock()
			if elves--; elves == 0 {
				door.Post(1)
			}
			mu.Unlock()
			return nil
		})
	}
	return p
}
