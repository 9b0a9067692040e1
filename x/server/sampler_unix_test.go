//go:build unix

package server

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/internal/leasing"
	"github.com/sema-go/sema/x/sqlitestore"
)

// BenchmarkSampler measures one sample of 2,000 semaphores in use: the list of the store, the
// figures of the meter, and the history with its files. A sample is taken every 5 seconds, so
// 50 ms are 1 % of a core. %core is time of the processor, of all goroutines.
func BenchmarkSampler(b *testing.B) {
	for name, open := range map[string]func() (fleet.Store, error){
		"memory": func() (fleet.Store, error) { return memstore.New(), nil },
		"sqlite": func() (fleet.Store, error) {
			return sqlitestore.Open(filepath.Join(b.TempDir(), "sema.db"), sqlitestore.Options{Normal: true})
		},
	} {
		b.Run(name, func(b *testing.B) {
			const semaphores = 2000
			store, err := open()
			if err != nil {
				b.Fatal(err)
			}
			s, err := newService(store, Options{
				Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), History: b.TempDir(), Limits: Limits{Series: semaphores, Held: 10 * semaphores},
			})
			if err != nil {
				b.Fatal(err)
			}
			defer s.close()
			use := func(i, times int) {
				for range times {
					lease, err := s.manager.Acquire(b.Context(), leasing.Request{
						Semaphore: fmt.Sprintf("s-%d", i), Weight: 1, Config: Declaration{Capacity: 8, TTL: time.Hour}.Config(),
					})
					if err != nil {
						b.Fatal(err)
					}
					if times > 1 {
						if err := s.manager.Release(b.Context(), "", lease.Semaphore, lease.ID); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
			for i := range semaphores {
				use(i, 2)
				use(i, 1)
			}
			now, before := time.Now(), processorTime(b)
			for b.Loop() {
				now = now.Add(sampleEvery)
				s.sampler.lock(b.Context())
				s.sampler.tried, s.sampler.took = time.Time{}, 0
				s.sampler.unlock()
				s.sampler.readClock(b.Context())
				s.sampler.refresh(b.Context(), 0)
				s.sampler.known.Store(math.MaxInt64) // now is in the future
				s.sampler.record(now)
				if err := s.history.Flush(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(100*(processorTime(b)-before).Seconds()/float64(b.N)/sampleEvery.Seconds(), "%core")
			if n := s.meter.Trackers(); n != semaphores {
				b.Errorf("%d semaphores are measured", n)
			}
		})
	}
}

// processorTime returns the time of the processor that this process has used.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
