package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// postgresScenarios returns the scenarios that compare the PostgreSQL store
// with a common hand-written implementation. The server syncs to disk, which is
// its default.
func postgresScenarios() []scenario {
	if !installed("psql", "postgres-…") {
		return nil
	}
	server := once(func(s *storetest.Scope) *pgtest.Server { return pgtest.Start(s) })
	b := &storeBench{url: func() string { return server().URL() }}
	return []scenario{
		{
			name:    "postgres-pairs",
			about:   "PostgreSQL: 256 goroutines acquire + release one semaphore",
			impls:   []impl{{"sema/fleet", b.pairs(256, 60)}, {"SELECT … FOR UPDATE", rowLockPairs(server)}},
			targets: []target{{impl: "sema/fleet", rival: "SELECT … FOR UPDATE", limit: 1. / 20}},
		},
		b.pooledScenario("postgres", "PostgreSQL"),
	}
}

// rowLockSchema is a semaphore as it is often written by hand: it locks the row
// of the configuration, counts the permits and inserts one. A single function
// call does all of that, which is the fastest variant. It does not wait for
// permits.
const rowLockSchema = `
CREATE TABLE semaphore_permits (
  resource varchar(255) NOT NULL, owner_token varchar(64) NOT NULL, acquired_at timestamp NOT NULL DEFAULT now(), expires_at timestamp NOT NULL,
  PRIMARY KEY (resource, owner_token)
);
CREATE TABLE semaphore_config (resource varchar(255) PRIMARY KEY, max_permits int NOT NULL, status text NOT NULL DEFAULT 'active');
INSERT INTO semaphore_config VALUES ('r', 1000);
CREATE FUNCTION seed_acquire(r text, token text) RETURNS boolean LANGUAGE plpgsql AS $$
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

// rowLockPairs uses rowLockSchema over 32 connections, which is about the
// optimum.
func rowLockPairs(server func() *pgtest.Server) func() sample {
	ctx := context.Background()
	pool := sync.OnceValue(func() *pgxpool.Pool {
		pool, err := pgxpool.New(ctx, server().URL()+"&pool_max_conns=32")
		must(err)
		_, err = pool.Exec(ctx, rowLockSchema)
		must(err)
		return pool
	})
	return func() sample {
		pool := pool()
		return concurrently(256, 6, func(int) {
			token := strconv.FormatUint(rand.Uint64(), 36)
			var got bool
			must(pool.QueryRow(ctx, "SELECT seed_acquire('r', $1)", token).Scan(&got))
			if !got {
				panic(fmt.Sprintf("the rival denied a permit although some are free: %s", token))
			}
			_, err := pool.Exec(ctx, "DELETE FROM semaphore_permits WHERE resource = 'r' AND owner_token = $1", token)
			must(err)
		})
	}
}
