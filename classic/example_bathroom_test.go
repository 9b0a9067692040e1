package classic_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
)

// The unisex bathroom: at most three at a time, all of one sex. A lightswitch for each sex
// takes the room, and a turnstile that each one holds while it takes its place keeps one sex from
// starving the other.
func Example_unisexBathroom() {
	fmt.Println(run(bathroom))
	// Output: visits: 6
}

func bathroom(k kit) *problem {
	const most, each = 2, 3
	room := k.counter("room", 1)
	turnstile := k.gate(classic.NewTurnstile(sema.Name("turnstile")))
	var inside [2]atomic.Int64
	var visits atomic.Int64
	p := &problem{
		invariant: func() bool {
			a, b := inside[0].Load(), inside[1].Load()
			return a <= most && b <= most && (a == 0 || b == 0)
		},
		result: func() string { return fmt.Sprint("visits: ", visits.Load()) },
	}
	for sex := range 2 {
		multiplex := k.gate(sema.New(most, sema.Name(fmt.Sprint("places ", sex))))
		switcher := &lightswitch{mu: k.mutex(fmt.Sprint("lightswitch ", sex))}
		for i := range each {
			p.add(fmt.Sprintf("visitor %d of sex %d", i, sex), func(ctx context.Context) error {
				turn, err := turnstile.Acquire(ctx, 1)
				if err != nil {
					return err
				}
				defer turn.Release()
				if err := switcher.enter(ctx, room); err != nil {
					return err
				}
				turn.Release()
				place, err := multiplex.Acquire(ctx, 1)
				if err != nil {
					return err
				}
				inside[sex].Add(1)
				k.yield()
				visits.Add(1)
				inside[sex].Add(-1)
				place.Release()
				switcher.leave(room)
				return nil
			})
		}
	}
	return p
}
