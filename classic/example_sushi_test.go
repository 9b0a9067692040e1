package classic_test

import (
	"context"
	"fmt"
	"sync"
)

// The sushi bar: five customers at a bar that is full are a party. Those that come then wait
// until all of them have left. The last one that leaves lets the next ones in, and counts
// them for them: they cannot be overtaken while they wake up.
func Example_sushiBar() {
	fmt.Println(run(sushiBar))
	// Output: 8 have eaten
}

func sushiBar(k kit) *problem {
	const seats, customers = 3, 8
	mu, door := k.mutex("bar"), k.counter("door", 0)
	eating, waiting, eaten := 0, 0, 0 // mu guards them
	party := false
	p := &problem{
		invariant: func() bool { return eating <= seats && eating >= 0 },
		result:    func() string { return fmt.Sprint(eaten, " have eaten") },
	}
	for i := range customers {
		p.add(fmt.Sprint("customer ", i), func(ctx context.Context) error {
			if wait := enterBar(mu, &eating, &waiting, &party, seats); wait {
				if err := door.Wait(ctx, 1); err != nil {
					return err
				}
			}
			k.yield()
			mu.Lock()
			defer mu.Unlock()
			eating--
			eaten++
			if eating == 0 {
				n := min(seats, waiting)
				waiting, eating = waiting-n, n
				party = eating == seats
				if n > 0 {
					door.Post(int64(n))
				}
			}
			return nil
		})
	}
	return p
}

// enterBar takes a seat, or reports that the customer has to wait for the party to leave.
func enterBar(mu sync.Locker, eating, waiting *int, party *bool, seats int) (wait bool) {
	mu.Lock()
	defer mu.Unlock()
	if *party {
		*waiting++
		return true
	}
	*eating++
	*party = *eating == seats
	return false
}
