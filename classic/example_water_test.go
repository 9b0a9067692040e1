package classic_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/sema-go/sema/classic"
)

// Building H2O: two atoms of hydrogen and one of oxygen bond, and none of them goes on before
// all three have come. The atom that completes a molecule signals the others. The oxygen
// unlocks the mutex after the barrier, so that one molecule forms at a time.
func Example_buildingH2O() {
	fmt.Println(run(water))
	// Output: 2 molecules, 4 of H and 2 of O
}

func water(k kit) *problem {
	const molecules = 2
	mu, bond := k.mutex("atoms"), classic.NewBarrier(3)
	queueH, queueO := k.counter("hydrogen", 0), k.counter("oxygen", 0)
	var hydrogen, oxygen int64        // that wait; mu guards them
	var bondedH, bondedO atomic.Int64 // so far
	formed := 0
	p := &problem{
		invariant: func() bool { return bondedH.Load() <= 2*int64(formed)+2 && bondedO.Load() <= int64(formed)+1 },
		result: func() string {
			return fmt.Sprintf("%d molecules, %d of H and %d of O", formed, bondedH.Load(), bondedO.Load())
		},
	}
	// join unlocks the mutex, unless the atom completes a molecule.
	join := func() {
		if hydrogen >= 2 && oxygen >= 1 {
			hydrogen, oxygen = hydrogen-2, oxygen-1
			queueH.Post(2)
			queueO.Post(1)
		} else {
			mu.Unlock()
		}
	}
	for i := range 2 * molecules {
		p.add(fmt.Sprint("H ", i), func(ctx context.Context) error {
			mu.Lock()
			hydrogen++
			join()
			if err := queueH.Wait(ctx, 1); err != nil {
				return err
			}
			bondedH.Add(1)
			_, err := bond.Wait(ctx)
			return err
		})
	}
	for i := range molecules {
		p.add(fmt.Sprint("O ", i), func(ctx context.Context) error {
			mu.Lock()
			oxygen++
			join()
			if err := queueO.Wait(ctx, 1); err != nil {
				return err
			}
			bondedO.Add(1)
			if _, err := bond.Wait(ctx); err != nil {
				return err
			}
			formed++
			mu.Unlock()
			return nil
		})
	}
	return p
}
