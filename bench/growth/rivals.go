package growth

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// mutexes returns the rivals that lock a key, while others are locked.
func mutexes(s *storetest.Scope) (all []contender) {
	if _, err := exec.LookPath("redis-server"); err == nil {
		server := sync.OnceValue(func() *redistest.Server { return redistest.Start(s) })
		all = append(all, contender{"redsync", tenfold(10, 100_000), func(n int) float64 { return besideRedsync(server(), n) }, true})
	}
	if _, err := exec.LookPath("etcd"); err != nil {
		fmt.Fprintln(os.Stderr, "etcd is not installed: its mutex is not measured")
		return all
	}
	cluster := sync.OnceValue(func() *etcdtest.Cluster { return etcdtest.Start(s, 1) })
	return append(all, contender{"etcd concurrency.Mutex", tenfold(10, 10_000), func(n int) float64 { return besideMutexes(cluster(), n) }, true})
}

// rounds separates the keys of measurements.
var rounds atomic.Int64

// besideRedsync returns the time of a lock and an unlock, while n other keys are locked.
func besideRedsync(server *redistest.Server, n int) float64 {
	o, err := redis.ParseURL(server.URL())
	must(err)
	client := redis.NewClient(o)
	defer client.Close()
	locks := redsync.New(redsyncpool.NewPool(client))
	prefix := fmt.Sprintf("redsync-%d-", rounds.Add(1))
	held := make([]*redsync.Mutex, n)
	together(n, func(i int) {
		held[i] = locks.NewMutex(fmt.Sprint(prefix, i), redsync.WithExpiry(time.Hour))
		must(held[i].Lock())
	})
	mutex := locks.NewMutex(prefix + "x")
	took := medianTime(200, func() {
		must(mutex.Lock())
		_, err := mutex.Unlock()
		must(err)
	})
	together(n, func(i int) { _, err := held[i].Unlock(); must(err) })
	return took
}

// besideMutexes returns the time of a lock and an unlock, while n other keys are locked.
func besideMutexes(cluster *etcdtest.Cluster, n int) float64 {
	client, err := clientv3.New(clientv3.Config{Endpoints: cluster.Addresses(), Logger: zap.NewNop()})
	must(err)
	defer client.Close()
	session, err := concurrency.NewSession(client)
	must(err)
	defer session.Close() // unlocks all
	prefix := fmt.Sprintf("mutex-%d-", rounds.Add(1))
	together(n, func(i int) { must(concurrency.NewMutex(session, fmt.Sprint(prefix, i)).Lock(background)) })
	mutex := concurrency.NewMutex(session, prefix+"x")
	return medianTime(50, func() {
		must(mutex.Lock(background))
		must(mutex.Unlock(background))
	})
}
