package main

import (
	"context"

	"github.com/sema-go/sema/pool"
)

// poolScenarios compare package pool with puddle, the pool behind pgx. The items are not
// connections, so that the pools are measured alone.
func poolScenarios() []scenario {
	rival := puddlePool.name
	targets := func(limit float64) []target {
		return []target{
			{impl: semaPool.name, rival: rival, limit: limit},
			{impl: semaPool.name, limit: 0.01, value: func(r row) float64 { return r.AllocsOp }, unit: "allocs/op"},
		}
	}
	return []scenario{
		{
			name: "pool-uncontended", about: "one goroutine gets an item and releases it",
			impls: alone(semaPool, puddlePool), targets: targets(0.4),
		},
		{
			name: "pool-64-on-8", about: "64 goroutines share 8 items",
			impls: contended(64, 8, 640_000, shortHold, semaPool, puddlePool), targets: targets(0.5),
		},
	}
}

var semaPool = contender{"sema/pool", func(capacity int64) pairs {
	p := pool.New(pool.Config[int]{
		Size: capacity, Open: func(context.Context) (int, error) { return 0, nil },
	})
	return func(ctx context.Context, n int, _ int64, hold func()) {
		for range n {
			item, err := p.Get(ctx)
			must(err)
			hold()
			item.Release()
		}
	}
}}
