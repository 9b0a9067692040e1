package pgstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// callers is the number of goroutines that share one semaphore.
const callers = 256

// BenchmarkPairs counts an acquire and its release as one, in exact mode through one
// client: of a semaphore with a permit for each caller, and of one with fewer. The server
// waits for the disk, as it does by default.
func BenchmarkPairs(b *testing.B) {
	server := pgtest.Start(b)
	for _, load := range []struct {
		name     string
		capacity int64
		settings string
	}{{"free", 1000, ""}, {"queued", 16, ""}, {"free/unprepared", 1000, "&default_query_exec_mode=exec"}, {"free/asynchronous", 1000, "&synchronous_commit=off"}} {
		b.Run(load.name, func(b *testing.B) {
			store := openAt(b, server.URL()+load.settings, Options{Schema: newSchema()})
			client := fleet.New(store)
			s, err := client.Semaphore("pairs", load.capacity)
			if err != nil {
				b.Fatal(err)
			}
			spread(b, func() error {
				p, err := s.Acquire(ctx, 1)
				p.Release()
				return err
			})
			b.ReportMetric(float64(b.N)/float64(max(s.Stats().Batches, 1)), "pairs/batch")
			if err := client.Close(ctx); err != nil {
				b.Error(err)
			}
		})
	}
}

// BenchmarkSeedPairs measures the algorithm that is commonly written by hand: it locks the
// row of the configuration, counts the permits and inserts one, each in one call of a
// function. It does not wait for permits.
func BenchmarkSeedPairs(b *testing.B) {
	server := pgtest.Start(b)
	for _, n := range []int{1, 32, callers} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pool, err := pgxpool.New(ctx, server.URL()+fmt.Sprintf("&pool_max_conns=%d", min(n, 32)))
			if err != nil {
				b.Fatal(err)
			}
			defer pool.Close()
			if _, err := pool.Exec(ctx, seed); err != nil {
				b.Fatal(err)
			}
			var tokens atomic.Int64
			spreadOver(b, n, func() error {
				token := fmt.Sprint(tokens.Add(1))
				var got bool
				if err := pool.QueryRow(ctx, "SELECT seed_acquire('r', $1)", token).Scan(&got); err != nil || !got {
					return fmt.Errorf("got %t, %w", got, err)
				}
				_, err := pool.Exec(ctx, "DELETE FROM semaphore_permits WHERE resource = 'r' AND owner_token = $1", token)
				return err
			})
		})
	}
}

const seed = `
DROP TABLE IF EXISTS semaphore_permits, semaphore_config;
CREATE TABLE semaphore_permits (
  resource varchar(255) NOT NULL, owner_token varchar(64) NOT NULL, acquired_at timestamp NOT NULL DEFAULT now(), expires_at timestamp NOT NULL,
  PRIMARY KEY (resource, owner_token)
);
CREATE TABLE semaphore_config (resource varchar(255) PRIMARY KEY, max_permits int NOT NULL, status text NOT NULL DEFAULT 'active');
INSERT INTO semaphore_config VALUES ('r', 1000);
CREATE OR REPLACE FUNCTION seed_acquire(r text, token text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  most int; taken int;
BEGIN
  SELECT max_permits INTO most FROM semaphore_config WHERE resource = r AND status = 'active' FOR UPDATE;
  SELECT count(*) INTO taken FROM semaphore_permits WHERE resource = r AND expires_at > clock_timestamp();
  IF taken >= most THEN
    RETURN false;
  END IF;
  INSERT INTO semaphore_permits (resource, owner_token, expires_at) VALUES (r, token, clock_timestamp() + interval '15 s');
  RETURN true;
END $$`

func spread(b *testing.B, pair func() error) { spreadOver(b, callers, pair) }

// spreadOver does b.N pairs from n goroutines.
func spreadOver(b *testing.B, n int, pair func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := pair(); err != nil {
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
