package classic_test

import (
	"context"
	"fmt"
)

// Cigarette smokers: an agent puts two of three ingredients on the table, and the smoker that
// has the third one must take both. Smokers that wait for single ingredients deadlock. So a
// pusher for each ingredient notes what is there, and signals the one smoker that can go on.
func Example_cigaretteSmokers() {
	fmt.Println(run(smokers))
	// Output: smoked: [2 2 2]
}

func smokers(k kit) *problem {
	const rounds = 6
	agent, table := k.counter("agent", 1), k.mutex("table")
	var ingredients, smoker [3]counter
	for i := range 3 {
		ingredients[i], smoker[i] = k.counter(fmt.Sprint("ingredient ", i), 0), k.counter(fmt.Sprint("smoker ", i), 0)
	}
	var there [3]int // ingredients that wait for a second one
	var smoked [3]int
	p := &problem{result: func() string { return fmt.Sprint("smoked: ", smoked) }}
	p.add("agent", func(ctx context.Context) error {
		for round := range rounds {
			if err := agent.Wait(ctx, 1); err != nil {
				return err
			}
			for i := range 3 {
				if i != round%3 {
					ingredients[i].Post(1)
				}
			}
		}
		return nil
	})
	for i := range 3 {
		a, b := (i+1)%3, (i+2)%3
		p.add(fmt.Sprint("pusher ", i), func(ctx context.Context) error {
			for range rounds * 2 / 3 {
				if err := ingredients[i].Wait(ctx, 1); err != nil {
					return err
				}
				table.Lock()
				switch {
				case there[a] > 0:
					there[a]--
					smoker[b].Post(1)
				case there[b] > 0:
					there[b]--
					smoker[a].Post(1)
				default:
					there[i]++
				}
				table.Unlock()
			}
			return nil
		})
		p.add(fmt.Sprint("smoker ", i), func(ctx context.Context) error {
			for range rounds / 3 {
				if err := smoker[i].Wait(ctx, 1); err != nil {
					return err
				}
				smoked[i]++
				agent.Post(1)
			}
			return nil
		})
	}
	return p
}
