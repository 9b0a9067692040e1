package classic_test

import (
	"context"
	"fmt"
)

// Dining savages: they eat from one pot. The one that finds it empty wakes the cook, and waits
// until the pot is full. It keeps the mutex meanwhile, so that the others wait as well.
func Example_diningSavages() {
	fmt.Println(run(savages))
	// Output: eaten 9, cooked 3 times
}

func savages(k kit) *problem {
	const pot, each, eaters = 3, 3, 3
	mu, empty, full := k.mutex("pot"), k.counter("empty", 0), k.counter("full", 0)
	servings, eaten, cooked := 0, 0, 0 // mu guards them
	p := &problem{
		invariant: func() bool { return servings >= 0 && servings <= pot },
		result:    func() string { return fmt.Sprintf("eaten %d, cooked %d times", eaten, cooked) },
	}
	p.add("cook", func(ctx context.Context) error {
		for range eaters * each / pot {
			if err := empty.Wait(ctx, 1); err != nil {
				return err
			}
			servings = pot // the savage that has woken the cook holds mu
			cooked++
			full.Post(1)
		}
		return nil
	})
	for i := range eaters {
		p.add(fmt.Sprint("savage ", i), func(ctx context.Context) error {
			for range each {
				mu.Lock()
				if servings == 0 {
					empty.Post(1)
					if err := full.Wait(ctx, 1); err != nil {
						return err
					}
				}
				servings--
				eaten++
				mu.Unlock()
			}
			return nil
		})
	}
	return p
}
