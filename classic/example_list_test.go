package classic_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
)

// Search-insert-delete: searchers of a list share it with each other and with one inserter. A
// deleter is alone. So searchers and inserters are the readers of an RWLock, and inserters
// also exclude each other.
func Example_searchInsertDelete() {
	fmt.Println(run(searchInsertDelete))
	// Output: searched 3, inserted 2, deleted 2
}

func searchInsertDelete(k kit) *problem {
	list := classic.NewRWLock(classic.FairRW, sema.Name("list"))
	shared, alone := k.gate(list.Reader()), k.gate(list.Writer())
	insert := k.gate(sema.New(1, sema.Name("insert")))
	roles := []struct {
		name   string
		number int
		gates  []sema.Gate // acquired in this order
	}{
		{"searcher", 3, []sema.Gate{shared}},
		{"inserter", 2, []sema.Gate{insert, shared}},
		{"deleter", 2, []sema.Gate{alone}},
	}
	var inside, done [3]atomic.Int64
	p := &problem{
		invariant: func() bool {
			searching, inserting, deleting := inside[0].Load(), inside[1].Load(), inside[2].Load()
			return inserting <= 1 && (deleting == 0 || deleting == 1 && searching+inserting == 0)
		},
		result: func() string {
			return fmt.Sprintf("searched %d, inserted %d, deleted %d", done[0].Load(), done[1].Load(), done[2].Load())
		},
	}
	for kind, r := range roles {
		for i := range r.number {
			p.add(fmt.Sprint(r.name, " ", i), func(ctx context.Context) error {
				for _, g := range r.gates {
					permit, err := g.Acquire(ctx, 1)
					if err != nil {
						return err
					}
					defer permit.Release()
				}
				inside[kind].Add(1)
				k.yield()
				done[kind].Add(1)
				inside[kind].Add(-1)
				return nil
			})
		}
	}
	return p
}
