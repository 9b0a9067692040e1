package classic_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/sema-go/sema/classic"
)

// The FIFO barbershop: customers wait on a few chairs, and leave if all are taken. The barber
// serves them in order of arrival, and sleeps while there is none. The chairs are a Buffer, in
// which each customer leaves the signal that it waits for.
func Example_barbershop() {
	fmt.Println(run(barbershop))
	// Output: 5 customers were served or found no chair
}

func barbershop(k kit) *problem {
	const chairs, customers = 2, 5
	waiting := classic.NewBuffer[counter](chairs)
	var served, left, gone atomic.Int64
	p := &problem{
		invariant: func() bool { return waiting.Len() <= chairs && served.Load()+left.Load() <= customers },
		result: func() string {
			return fmt.Sprint(served.Load()+left.Load(), " customers were served or found no chair")
		},
	}
	p.add("barber", func(ctx context.Context) error {
		for done, err := range waiting.All(ctx) {
			if err != nil {
				return err
			}
			k.yield()
			served.Add(1)
			done.Post(1)
		}
		return nil
	})
	for i := range customers {
		p.add(fmt.Sprint("customer ", i), func(ctx context.Context) error {
			done := k.counter(fmt.Sprint("hair of ", i), 0)
			if !waiting.TryPut(done) {
				left.Add(1)
			} else if err := done.Wait(ctx, 1); err != nil {
				return err
			}
			if gone.Add(1) == customers {
				waiting.Close() // the shop closes
			}
			return nil
		})
	}
	return p
}
