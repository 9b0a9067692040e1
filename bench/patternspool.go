package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"
	"github.com/sema-go/sema/pool"
)

// poolScenarios compare package pool with puddle, the pool behind pgx. The items are not
// connections, so that the pools are measured alone.
func poolScenarios() []scenario {
	noAllocs := func(name string) target {
		return target{impl: name, limit: 0.01, value: func(r row) float64 { return r.AllocsOp }, unit: "allocs/op"}
	}
	ours, timeouts, rival := semaPool.name, semaPoolTimeouts.name, puddlePool.name
	return []scenario{
		{
			name: "pool-uncontended", about: "one goroutine gets an item and releases it",
			impls: alone(semaPool, semaPoolTimeouts, puddlePool),
			targets: []target{
				{impl: ours, rival: rival, limit: 0.4}, {impl: timeouts, rival: rival, limit: 0.4},
				noAllocs(ours), noAllocs(timeouts),
			},
		},
		{
			name: "pool-64-on-8", about: "64 goroutines share 8 items",
			impls:   contended(64, 8, 640_000, shortHold, semaPool, puddlePool),
			targets: []target{{impl: ours, rival: rival, limit: 0.5}, noAllocs(ours)},
		},
		{
			name: "pool-churn", about: "64 goroutines share 8 items, one use in a hundred breaks its item: items opened beyond those broken",
			impls: []impl{{ours, semaChurn}, {rival, puddleChurn}},
			targets: []target{
				{impl: ours, rival: rival, limit: 0.5},
				{impl: ours, limit: 8, value: func(r row) float64 { return r.Count }, unit: "items"},
			},
		},
	}
}

func openNothing(context.Context) (int, error) { return 0, nil }

var (
	semaPool = contender{"sema/pool", poolPairs(pool.Config[int]{Open: openNothing})}

	// semaPoolTimeouts is configured as a pool of connections is. puddle leaves that to its
	// users.
	semaPoolTimeouts = contender{"sema/pool, timeouts", poolPairs(pool.Config[int]{
		Open: openNothing, Check: func(context.Context, int) error { return nil },
		CheckAfter: time.Minute, MaxIdleTime: time.Hour, MaxLifetime: time.Hour,
	})}
)

func poolPairs(config pool.Config[int]) func(int64) pairs {
	return func(capacity int64) pairs {
		config.Size = capacity
		p := pool.New(config)
		return func(ctx context.Context, n int, _ int64, hold func()) {
			for range n {
				item, err := p.Get(ctx)
				must(err)
				hold()
				item.Release()
			}
		}
	}
}

func semaChurn() sample {
	var opened atomic.Int64
	p := pool.New(pool.Config[int]{Size: churnItems, Open: func(context.Context) (int, error) { opened.Add(1); return 0, nil }})
	defer p.Close()
	return churn(&opened, func(ctx context.Context, broken bool) {
		item, err := p.Get(ctx)
		must(err)
		shortHold()
		if broken {
			item.Discard()
		} else {
			item.Release()
		}
	})
}

func puddleChurn() sample {
	var opened atomic.Int64
	p, err := puddle.NewPool(&puddle.Config[int]{
		Constructor: func(context.Context) (int, error) { opened.Add(1); return 0, nil },
		Destructor:  func(int) {},
		MaxSize:     churnItems,
	})
	must(err)
	defer p.Close()
	return churn(&opened, func(ctx context.Context, broken bool) {
		r, err := p.Acquire(ctx)
		must(err)
		shortHold()
		if broken {
			r.Destroy()
		} else {
			r.Release()
		}
	})
}

const churnItems = 8

// churn starts goroutines that use items, one in a hundred of which breaks. The count is how many
// were opened beyond those that broke.
func churn(opened *atomic.Int64, use func(ctx context.Context, broken bool)) sample {
	const goroutines, each = 64, 10_000
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	start, done := gatedGoroutines(goroutines, func(int) {
		for i := range each {
			use(ctx, i%100 == 99)
		}
	})
	s := measure(goroutines*each, func() { start(); done() })
	s.count = float64(opened.Load() - goroutines*each/100)
	return s
}
