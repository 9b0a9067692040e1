package classic_test

import (
	"context"
	"fmt"

	"github.com/sema-go/sema/classic"
)

// River crossing: a boat takes exactly four, either four of a kind or two hackers and two
// serfs. The one that completes a group calls the others aboard, and is the captain. It keeps
// the mutex until all four have boarded: a Barrier.
func Example_riverCrossing() {
	fmt.Println(run(riverCrossing))
	// Output: 2 boats, 8 passengers
}

func riverCrossing(k kit) *problem {
	const kinds, each, seats = 2, 4, 4
	mu, boat := k.mutex("shore"), classic.NewBarrier(seats)
	queue := [kinds]counter{k.counter("hackers", 0), k.counter("serfs", 0)}
	var ashore [kinds]int64 // mu guards these
	boats, passengers := 0, 0
	p := &problem{result: func() string { return fmt.Sprintf("%d boats, %d passengers", boats, passengers) }}
	for i := range kinds * each {
		mine, other := i%kinds, (i+1)%kinds
		p.add(fmt.Sprint([]string{"hacker ", "serf "}[mine], i/kinds), func(ctx context.Context) error {
			mu.Lock()
			ashore[mine]++
			captain := true
			switch {
			case ashore[mine] == seats:
				ashore[mine] = 0
				queue[mine].Post(seats)
			case ashore[mine] == seats/2 && ashore[other] >= seats/2:
				ashore[mine], ashore[other] = 0, ashore[other]-seats/2
				queue[mine].Post(seats / 2)
				queue[other].Post(seats / 2)
			default:
				captain = false
				mu.Unlock()
			}
			if err := queue[mine].Wait(ctx, 1); err != nil {
				return err
			}
			if _, err := boat.Wait(ctx); err != nil {
				return err
			}
			k.yield()
			if captain {
				boats, passengers = boats+1, passengers+seats
				mu.Unlock()
			}
			return nil
		})
	}
	return p
}
