package fleettest_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

// A faulty store is a good one, but for one thing.
type faulty struct {
	fleet.Store
	apply  func(store fleet.Store, name string, b protocol.Batch) (protocol.Reply, error)
	listen func(hint func(string)) func(string)
}

func (f *faulty) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if f.apply == nil {
		return f.Store.Apply(ctx, name, b)
	}
	return f.apply(f.Store, name, b)
}

func (f *faulty) Listen(ctx context.Context, instance string, hint func(string)) error {
	if f.listen != nil {
		hint = f.listen(hint)
	}
	return f.Store.Listen(ctx, instance, hint)
}

// without is a batch without the ops that have something.
func without(b protocol.Batch, unwanted func(protocol.Op) bool) protocol.Batch {
	b.Ops = slices.DeleteFunc(slices.Clone(b.Ops), unwanted)
	return b
}

func TestFaultyStoresAreCaught(t *testing.T) {
	t.Parallel()
	background := context.Background()
	for name, make := range map[string]func() *faulty{
		"none": func() *faulty { return &faulty{} },
		"hints are lost": func() *faulty {
			return &faulty{listen: func(func(string)) func(string) { return func(string) {} }}
		},
		"hints go out twice": func() *faulty {
			return &faulty{listen: func(hint func(string)) func(string) {
				return func(name string) { hint(name); hint(name) }
			}}
		},
		"some releases are lost": func() *faulty {
			n := 0
			var mu sync.Mutex
			return &faulty{apply: func(store fleet.Store, name string, b protocol.Batch) (protocol.Reply, error) {
				return store.Apply(background, name, without(b, func(op protocol.Op) bool {
					mu.Lock()
					defer mu.Unlock()
					n++
					return op.Verb == protocol.Release && n%7 == 0
				}))
			}}
		},
		"cancels come too late": func() *faulty {
			return &faulty{apply: func(store fleet.Store, name string, b protocol.Batch) (protocol.Reply, error) {
				return store.Apply(background, name, without(b, func(op protocol.Op) bool { return op.Verb == protocol.Cancel }))
			}}
		},
		"a repeated batch is done again": func() *faulty {
			seqs := map[protocol.Session]uint64{}
			var mu sync.Mutex
			return &faulty{apply: func(store fleet.Store, name string, b protocol.Batch) (protocol.Reply, error) {
				mu.Lock()
				defer mu.Unlock()
				seqs[b.Session]++
				b.Seq = seqs[b.Session] + 1<<20
				return store.Apply(background, name, b)
			}}
		},
		"a batch is done op by op": func() *faulty {
			seqs := map[string]uint64{}
			var mu sync.Mutex
			return &faulty{apply: func(store fleet.Store, name string, b protocol.Batch) (reply protocol.Reply, err error) {
				mu.Lock()
				defer mu.Unlock()
				ops := b.Ops
				for i := range max(1, len(ops)) {
					b.Ops = ops[min(i, len(ops)):min(i+1, len(ops))]
					key := name + string(rune(b.Session))
					seqs[key]++
					b.Seq = seqs[key]
					if reply, err = store.Apply(background, name, b); err != nil {
						return reply, err
					}
				}
				return reply, nil
			}}
		},
		"nothing is ever acknowledged": func() *faulty {
			return &faulty{apply: func(store fleet.Store, name string, b protocol.Batch) (protocol.Reply, error) {
				b.Ack = 0
				return store.Apply(background, name, b)
			}}
		},
		"weights are all one": func() *faulty {
			return &faulty{apply: func(store fleet.Store, name string, b protocol.Batch) (protocol.Reply, error) {
				b.Ops = slices.Clone(b.Ops)
				for i := range b.Ops {
					b.Ops[i].Weight = min(b.Ops[i].Weight, 1)
				}
				return store.Apply(background, name, b)
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var caught []string
			var wg sync.WaitGroup
			for _, c := range fleettest.Checks() {
				wg.Go(func() {
					f := make()
					f.Store = memstore.New()
					if err := c.Run(background, f); err != nil {
						mu.Lock()
						defer mu.Unlock()
						caught = append(caught, c.Name)
					}
				})
			}
			wg.Wait()
			if (len(caught) == 0) != (name == "none") {
				t.Errorf("caught by %q", caught)
			}
		})
	}
}
