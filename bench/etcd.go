package main

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

// etcdScenarios returns the scenarios that compare the etcd store with etcd's
// own mutex.
func etcdScenarios() []scenario {
	if !installed("etcd", "etcd-…") {
		return nil
	}
	cluster := once(func(s *storetest.Scope) *etcdtest.Cluster { return etcdtest.Start(s, 1) })
	b := &storeBench{url: func() string { return cluster().URL() }}
	return []scenario{
		{
			name:    "etcd-pairs",
			about:   "etcd: 256 goroutines acquire + release one semaphore; or each its own mutex",
			impls:   []impl{{"sema/fleet", b.pairs(256, 30)}, {"concurrency.Mutex, 256 keys", mutexPairs(cluster)}},
			targets: []target{{impl: "sema/fleet", rival: "concurrency.Mutex, 256 keys", limit: 1. / 5}},
		},
		b.pooledScenario("etcd", "etcd"),
	}
}

// mutexPairs locks and unlocks mutexes, one per goroutine.
func mutexPairs(cluster func() *etcdtest.Cluster) func() sample {
	all := sync.OnceValue(func() (all []*concurrency.Mutex) {
		client, err := clientv3.New(clientv3.Config{Endpoints: cluster().Addresses(), Logger: zap.NewNop()})
		must(err)
		session, err := concurrency.NewSession(client)
		must(err)
		for i := range 256 {
			all = append(all, concurrency.NewMutex(session, fmt.Sprintf("mutex/%d", i)))
		}
		return all
	})
	return func() sample {
		all := all()
		return concurrently(len(all), 10, func(i int) {
			must(all[i].Lock(context.Background()))
			must(all[i].Unlock(context.Background()))
		})
	}
}
