package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// BenchmarkAcquire compares a batch of one acquire with the cheapest possible atomic
// acquire in Redis, a script of one ZADD. The two alternate, so that other load on the
// machine affects both in the same way.
func BenchmarkAcquire(b *testing.B) {
	s := openServer(b, redistest.Start(b))
	id, _, err := s.Open(ctx, "bench", protocol.Config{Capacity: 1000, TTL: sessiontest.TTL, Protocol: protocol.Version}, sessiontest.Opener("bench"))
	if err != nil {
		b.Fatal(err)
	}
	var seq, ack uint64
	send := func(op protocol.Op) protocol.Reply {
		seq++
		r, err := s.Apply(ctx, "bench", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: seq, Ack: ack, Ops: []protocol.Op{op}})
		if err != nil || r.Status != protocol.Applied {
			b.Fatal(r, err)
		}
		return r
	}
	script := rueidis.NewLuaScript("return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])")
	var bare, acquires []time.Duration
	for n := 0; b.Loop(); n++ {
		began := time.Now()
		if err := script.Exec(ctx, s.servers[0].current(), []string{"{bench}"}, []string{fmt.Sprint(n), fmt.Sprint(n % 100)}).Error(); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, time.Since(began))
		began = time.Now()
		f := send(sessiontest.Acquire(protocol.Ticket(seq+1), 1)).Results[0]
		acquires = append(acquires, time.Since(began))
		ack = f.N
		send(sessiontest.Release(f.Lease))
	}
	slices.Sort(bare)
	slices.Sort(acquires)
	for name, at := range map[string]int{"median": 50, "p10": 10} {
		bare, acquire := bare[len(bare)*at/100], acquires[len(acquires)*at/100]
		b.ReportMetric(float64(bare.Nanoseconds())/1e3, name+"-bare-µs")
		b.ReportMetric(float64(acquire.Nanoseconds())/1e3, name+"-acquire-µs")
		b.ReportMetric(float64(acquire)/float64(bare), name+"-ratio")
	}
}

// BenchmarkPairs measures pairs of an acquire and a release, of goroutines that use one
// semaphore through one client.
func BenchmarkPairs(b *testing.B) {
	for _, load := range []struct {
		callers  int
		capacity int64
	}{{1, 1000}, {64, 1000}, {64, 16}, {512, 1000}, {512, 16}} {
		b.Run(fmt.Sprintf("%d callers of %d", load.callers, load.capacity), func(b *testing.B) {
			server := redistest.Start(b)
			client := fleet.New(openServer(b, server))
			s, err := client.Semaphore("pairs", load.capacity)
			if err != nil {
				b.Fatal(err)
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			before := busyTime(b, server)
			b.ResetTimer()
			var wg sync.WaitGroup
			for range load.callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						p, err := s.Acquire(context.Background(), 1)
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
			b.ReportMetric((busyTime(b, server)-before)*1e6/float64(b.N), "redis-µs/pair")
			if err := client.Close(context.Background()); err != nil {
				b.Error(err)
			}
		})
	}
}

// busyTime returns the CPU time of the server's main thread in seconds. Other load on the
// machine affects it less than elapsed time.
func busyTime(b *testing.B, server *redistest.Server) (seconds float64) {
	b.Helper()
	facts := parseInfo(server.Must("INFO", "cpu"))
	for _, key := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		part, err := strconv.ParseFloat(facts[key], 64)
		if err != nil {
			b.Fatal(err)
		}
		seconds += part
	}
	return seconds
}
