package classic_test

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Child care: there is one adult for every three children, at least. An adult that comes
// brings three places, and one that leaves takes three with it: at once, since of two adults
// that take them one by one, each may get some and keep the other from leaving.
func Example_childCare() {
	fmt.Println(run(childCare))
	// Output: 5 children were cared for
}

func childCare(k kit) *problem {
	const adults, children, perAdult = 2, 5, 3
	places, home := k.counter("places", 0), k.counter("home", 0)
	var present, inside, cared atomic.Int64
	p := &problem{
		invariant: func() bool { return inside.Load() <= perAdult*present.Load() },
		result:    func() string { return fmt.Sprint(cared.Load(), " children were cared for") },
	}
	for i := range adults {
		p.add(fmt.Sprint("adult ", i), func(ctx context.Context) error {
			present.Add(1)
			places.Post(perAdult)
			if i > 0 { // the first one leaves early
				if err := home.Wait(ctx, children); err != nil {
					return err
				}
			}
			err := places.Wait(ctx, perAdult)
			present.Add(-1)
			return err
		})
	}
	for i := range children {
		p.add(fmt.Sprint("child ", i), func(ctx context.Context) error {
			if err := places.Wait(ctx, 1); err != nil {
				return err
			}
			inside.Add(1)
			k.yield()
			inside.Add(-1)
			places.Post(1)
			cared.Add(1)
			home.Post(1)
			return nil
		})
	}
	return p
}
