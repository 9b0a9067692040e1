package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"

	"github.com/sema-go/sema/fleet/protocol"
	_ "modernc.org/sqlite"
)

// raw measures SQLite alone, through database/sql. It writes the rows that the
// durable store writes for as many pairs, in transactions of the same size. A
// batch of the client releases about as many leases as it acquires, and is one
// transaction. The transaction writes the semaphore's row, the session's row,
// and a row for each lease that was added or removed. The session's row contains
// the results that are not acknowledged yet.
func (f *fleetBench) raw() sample {
	perTransaction := max(1, int(math.Round(f.perTransaction)))
	const pairs = 256 * 60
	db := f.rawDatabase()
	defer db.Close()
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	must(err)
	defer conn.Close()
	prepare := func(query string) *sql.Stmt {
		s, err := conn.PrepareContext(ctx, query)
		must(err)
		return s
	}
	semaphore := prepare("INSERT OR REPLACE INTO semaphore VALUES (1, 'raw', ?, 0, 0, ?, ?, ?, ?, ?)")
	session := prepare("INSERT OR REPLACE INTO session VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
	lease := prepare("INSERT INTO lease VALUES (1, ?, ?, ?, ?, ?, ?, ?)")
	drop := prepare("DELETE FROM lease WHERE semaphore = 1 AND seq = ?")
	exec := func(s *sql.Stmt, args ...any) {
		_, err := s.Exec(args...)
		must(err)
	}
	config, err := json.Marshal(protocol.Config{Capacity: 1000, TTL: 15_000_000, Version: 1, Protocol: protocol.Version})
	must(err)
	seq := 1_700_000_000_000_000
	return measure(pairs, func() {
		for done := 0; done < pairs; done += perTransaction {
			_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
			must(err)
			results := make([]protocol.Result, perTransaction)
			for i := range results {
				results[i] = protocol.Result{N: uint64(done + i), Kind: protocol.Granted, Ticket: protocol.Ticket(done + i), Lease: protocol.Seq(seq + i), Weight: 1}
			}
			text, err := json.Marshal(results)
			must(err)
			exec(semaphore, string(config), seq, seq, 1, seq, done)
			exec(session, 1, "host/1/abcdef", done, seq, seq, done, done, false, string(text))
			for i := range perTransaction {
				if done > 0 {
					exec(drop, seq-perTransaction+i)
				}
				exec(lease, seq+i, 1, 1, false, false, seq, "bench/fleet.go:100")
			}
			_, err = conn.ExecContext(ctx, "COMMIT")
			must(err)
			seq += perTransaction
		}
	})
}

// rawDatabase creates a database with the tables of the durable store that this
// load uses.
func (f *fleetBench) rawDatabase() *sql.DB {
	path := filepath.Join(f.dir, fmt.Sprintf("raw-%d.db", f.names.Add(1)))
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	must(err)
	for _, statement := range []string{
		`CREATE TABLE semaphore (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, config TEXT, ramp_from, ramp_at, last, clock, last_session, last_seq, renewals)`,
		`CREATE TABLE session (semaphore, id, instance, seq, deadline, seen, renewal, last_result, recalled, results, PRIMARY KEY (semaphore, id)) WITHOUT ROWID`,
		`CREATE TABLE lease (semaphore, seq, session, weight, pooled, revoked, since, meta, PRIMARY KEY (semaphore, seq)) WITHOUT ROWID`,
	} {
		_, err := db.Exec(statement)
		must(err)
	}
	return db
}
