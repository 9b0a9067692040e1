package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
)

// postgresScenarios measure the PostgreSQL engine beside what people write by
// hand. The server waits for its disk, as it does unless told otherwise.
func postgresScenarios() []scenario {
	if !installed("psql", "postgres-…") {
		return nil
	}
	server := once(func(s *enginetest.Scope) *pgtest.Server { return pgtest.Start(s) })
	b := &engineBench{url: func() string { return server().URL() }}
	return []scenario{
		{
			name:  "postgres-pairs",
			about: "PostgreSQL: 256 goroutines acquire + release one semaphore",
			impls: []impl{{"sema/fleet", b.pairs(256, 60)}, {"SELECT … FOR UPDATE", seedSQL(server)}},
			bars:  []bar{{impl: "sema/fleet", rival: "SELECT … FOR UPDATE", limit: 1. / 20}},
		},
		b.pooledScenario("postgres", "PostgreSQL"),
	}
}

// seedTables are of the algorithm that is often written by hand: the row of the
// configuration locked, the permits counted, one of them inserted. In one call of
// a function, which is the best that can be made of it. It waits for nobody.
const seedTables = `
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

// seedSQL is that, over 32 connections, which is about the best number of them.
func seedSQL(server func() *pgtest.Server) func() sample {
	ctx := context.Background()
	pool := sync.OnceValue(func() *pgxpool.Pool {
		pool, err := pgxpool.New(ctx, server().URL()+"&pool_max_conns=32")
		must(err)
		_, err = pool.Exec(ctx, seedTables)
		must(err)
		return pool
	})
	return func() sample {
		pool := pool()
		return together(256, 6, func(int) {
			token := strconv.FormatUint(rand.Uint64(), 36)
			var got bool
			must(pool.QueryRow(ctx, "SELECT seed_acquire('r', $1)", token).Scan(&got))
			if !got {
				panic(fmt.Sprintf("a rival's permit is missing: %s", token))
			}
			_, err := pool.Exec(ctx, "DELETE FROM semaphore_permits WHERE resource = 'r' AND owner_token = $1", token)
			must(err)
		})
	}
}
