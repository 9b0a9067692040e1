package remotestore

import (
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sema-go/sema/fleet"
)

// BenchmarkPairs measures pairs of an acquire and a release of one permit. 256 goroutines
// use one semaphore through one client, over loopback, with the server in another
// process. Direct is the same without a service.
func BenchmarkPairs(b *testing.B) {
	backends := []string{"mem:", "sqlite:normal", "sqlite:full"}
	loads := []struct {
		name     string
		capacity int64
	}{{"free", 1000}, {"queued", 16}}
	for _, backend := range backends {
		for _, load := range loads {
			b.Run(backend+"/"+load.name, func(b *testing.B) {
				server := startServer(b, "127.0.0.1:0", backendURL(b, backend))
				pairs(b, openAt(b, server.Receive()), load.capacity)
			})
			b.Run(backend+"/"+load.name+"/direct", func(b *testing.B) {
				store, err := openBackend(backendURL(b, backend))
				if err != nil {
					b.Fatal(err)
				}
				pairs(b, store, load.capacity)
			})
		}
	}
}

// backendURL returns the URL of a backend, with its own file for SQLite.
func backendURL(t testing.TB, backend string) string {
	t.Helper()
	if how, ok := strings.CutPrefix(backend, "sqlite:"); ok {
		return "sqlite://" + filepath.Join(t.TempDir(), "fleet.db") + "?synchronous=" + how
	}
	return backend
}

// pairs acquires and releases b.N times.
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
