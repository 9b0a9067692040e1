package remotestore

import (
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sema-go/sema/fleet"
)

// BenchmarkPairs is 256 goroutines that acquire and release one permit each of one
// semaphore, through one client, over loopback, of a server in another process. An
// acquire and its release count as one. Direct is the same without a service.
func BenchmarkPairs(b *testing.B) {
	engines := []string{"mem:", "sqlite:normal", "sqlite:full"}
	loads := []struct {
		name     string
		capacity int64
	}{{"free", 1000}, {"queued", 16}}
	for _, engine := range engines {
		for _, load := range loads {
			b.Run(engine+"/"+load.name, func(b *testing.B) {
				server := startServer(b, "127.0.0.1:0", engineURL(b, engine))
				pairs(b, openAt(b, server.Hear()), load.capacity)
			})
			b.Run(engine+"/"+load.name+"/direct", func(b *testing.B) {
				store, err := openEngine(engineURL(b, engine))
				if err != nil {
					b.Fatal(err)
				}
				pairs(b, store, load.capacity)
			})
		}
	}
}

// engineURL is one with a file of its own.
func engineURL(t testing.TB, engine string) string {
	t.Helper()
	if how, ok := strings.CutPrefix(engine, "sqlite:"); ok {
		return "sqlite://" + filepath.Join(t.TempDir(), "fleet.db") + "?synchronous=" + how
	}
	return engine
}

// pairs does b.N of them.
func pairs(b *testing.B, store fleet.Store, capacity int64) {
	client := fleet.New(store)
	s, err := client.Semaphore("pairs", capacity)
	if err != nil {
		b.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 256 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				p, err := s.Acquire(ctx, 1)
				if err != nil {
					b.Error(err)
					return
				}
				p.Release()
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
	b.ReportMetric(float64(b.N)/float64(s.Stats().Batches), "pairs/batch")
	if err := client.Close(ctx); err != nil {
		b.Error(err)
	}
}
