package etcdstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

// callers is the number of goroutines of the benchmarks.
const callers = 256

// BenchmarkPairs counts an acquire and its release as one: 256 goroutines on one semaphore,
// through one client. For comparison, as many goroutines use etcd's own mutexes, one each.
func BenchmarkPairs(b *testing.B) {
	server := etcdtest.Start(b, 1)
	for _, capacity := range []int64{1000, 16} {
		b.Run(fmt.Sprintf("sema/capacity=%d", capacity), func(b *testing.B) {
			store := openBy(b, Options{Endpoints: server.Addresses(), Prefix: fmt.Sprintf("%d/", b.N)})
			client := fleet.New(store)
			s, err := client.Semaphore("pairs", capacity)
			if err != nil {
				b.Fatal(err)
			}
			share(b, func(int) error {
				p, err := s.Acquire(context.Background(), 1)
				if err == nil {
					p.Release()
				}
				return err
			})
			if err := client.Close(context.Background()); err != nil {
				b.Error(err)
			}
			b.ReportMetric(float64(b.N)/float64(store.counts.writes.Load()), "pairs/write")
		})
	}
	b.Run("concurrency.Mutex", func(b *testing.B) {
		client, err := clientv3.New(clientv3.Config{Endpoints: server.Addresses(), Logger: zap.NewNop()})
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		session, err := concurrency.NewSession(client)
		if err != nil {
			b.Fatal(err)
		}
		defer session.Close()
		var mutexes []*concurrency.Mutex
		for i := range callers {
			mutexes = append(mutexes, concurrency.NewMutex(session, fmt.Sprintf("mutex/%d/%d", b.N, i)))
		}
		share(b, func(i int) error {
			if err := mutexes[i].Lock(context.Background()); err != nil {
				return err
			}
			return mutexes[i].Unlock(context.Background())
		})
	})
}

// share does b.N operations from callers goroutines.
func share(b *testing.B, do func(caller int) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

// BenchmarkHandOff measures the time from a release in one client to the return of an
// acquire that waits in another.
func BenchmarkHandOff(b *testing.B) {
	server := etcdtest.Start(b, 1)
	observer := openAt(b, server, "")
	var gates []*fleet.Semaphore
	for range 2 {
		client := fleet.New(openAt(b, server, ""))
		defer client.Close(context.Background())
		s, err := client.Semaphore("baton", 1)
		if err != nil {
			b.Fatal(err)
		}
		gates = append(gates, s)
	}
	held, err := gates[0].Acquire(context.Background(), 1)
	if err != nil {
		b.Fatal(err)
	}
	var took time.Duration
	b.ResetTimer()
	for i := range b.N {
		got := make(chan sema.Permit)
		go func() {
			p, err := gates[(i+1)%2].Acquire(context.Background(), 1)
			if err != nil {
				b.Error(err)
			}
			got <- p
		}()
		for waits := false; !waits; {
			snapshot, err := observer.Inspect(context.Background(), "baton")
			if err != nil {
				b.Fatal(err)
			}
			waits = len(snapshot.Queue) == 1
		}
		began := time.Now()
		held.Release()
		held = <-got
		took += time.Since(began)
	}
	held.Release()
	b.ReportMetric(float64(took.Microseconds())/float64(b.N), "µs/hand-off")
}
