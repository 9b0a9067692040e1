package pgstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// BenchmarkBloat prints the state of the tables after b.N pairs, from the server's own
// statistics and with its default settings, those of autovacuum among them:
//
//	go test ./pgstore -run '^$' -bench Bloat -benchtime 1000000x
//
// Four clients with 64 goroutines each share a semaphore. It has a permit for each
// goroutine, or 16.
func BenchmarkBloat(b *testing.B) {
	for _, load := range []struct {
		name     string
		capacity int64
	}{{"free", 1000}, {"queued", 16}} {
		b.Run(load.name, func(b *testing.B) {
			server := pgtest.Start(b)
			b.ResetTimer()
			work(b, server, load.capacity)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
			waitFor(b, func() bool { // backends report their statistics when they end
				return mustPsql(b, server, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'worker'") == "0"
			})
			for _, table := range []string{"semaphore", "session", "lease", "ticket"} {
				b.Logf("%d pairs: %s", b.N, mustPsql(b, server, fmt.Sprintf(figures, table)))
			}
		})
	}
}

// figures is a query for the statistics of a table, as a sentence.
const figures = `SELECT format('%%s: %%s inserted, %%s deleted, %%s updated of which %%s%%%% HOT; %%s live and %%s obsolete row versions, autovacuum ran %%s times; %%s, with indexes %%s',
	relname, n_tup_ins, n_tup_del, n_tup_upd, coalesce(round(100.0 * n_tup_hot_upd / nullif(n_tup_upd, 0), 1), 100), n_live_tup, n_dead_tup, autovacuum_count,
	pg_size_pretty(pg_table_size(relid)), pg_size_pretty(pg_total_relation_size(relid))) FROM pg_stat_user_tables WHERE relname = '%s'`

// work does b.N pairs, and closes its connections.
func work(b *testing.B, server *pgtest.Server, capacity int64) {
	var (
		left atomic.Int64
		wg   sync.WaitGroup
	)
	left.Store(int64(b.N))
	for range 4 {
		store, err := Open(ctx, server.URL()+"&application_name=worker", Options{})
		if err != nil {
			b.Fatal(err)
		}
		client := fleet.New(store)
		defer client.Close(ctx)
		s, err := client.Semaphore("pairs", capacity)
		if err != nil {
			b.Fatal(err)
		}
		for range callers / 4 {
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
	}
	wg.Wait()
}
