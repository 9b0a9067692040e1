package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := pgtest.Shared.End(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func TestDBAdmit_BoundsHeavyStatements(t *testing.T) {
	url := pgtest.Shared.Server(t).URL()
	out := storetest.Printed(t, func() {
		if err := run(context.Background(), url); err != nil {
			t.Fatal(err)
		}
	})
	t.Log("\n" + out)
	kinds := regexp.MustCompile(`(light|medium|heavy): 30 statements, at most (\d+) at once, 0 failed`).FindAllStringSubmatch(out, -1)
	if len(kinds) != 3 {
		t.Fatalf("printed %q", out)
	}
	for _, k := range kinds {
		if most, _ := strconv.Atoi(k[2]); k[1] == "heavy" && most > maxHeavy || most < 1 {
			t.Errorf("%d %s statements at once", most, k[1])
		}
	}
	used := regexp.MustCompile(`at most (\d+) of 100 permits in use, 0 now`).FindStringSubmatch(out)
	if used == nil {
		t.Fatalf("permits leaked: %q", out)
	}
}

// TestDB_ReleasesExactly uses every way in which a statement on a real server ends.
func TestDB_ReleasesExactly(t *testing.T) {
	conn, err := sql.Open("pgx", pgtest.Shared.Server(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	gate := sema.New(permits)
	db := admit.NewDB(conn, gate, 1)
	held := func(want int64, when string) {
		t.Helper()
		if got := gate.Stats().InUse; got != want {
			t.Fatalf("%s: %d in use, want %d", when, got, want)
		}
	}
	ctx := t.Context()

	rows, err := db.As(admit.Heavy).QueryContext(ctx, "SELECT generate_series(1, 3)")
	if err != nil {
		t.Fatal(err)
	}
	held(25, "rows are open")
	rows.Next()
	rows.Close()
	rows.Close()
	held(0, "rows are closed")

	rows, err = db.QueryContext(ctx, "SELECT generate_series(1, 3)")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		held(1, "rows are read")
	}
	held(0, "rows are read to the end")

	if _, err := db.QueryContext(ctx, "SELECT nonsense FROM nowhere"); err == nil {
		t.Error("no error")
	}
	held(0, "a query has failed")

	var n int
	if err := db.As(admit.Medium).QueryRowContext(ctx, "SELECT 7").Scan(&n); err != nil || n != 7 {
		t.Errorf("%d, %v", n, err)
	}
	if err := db.QueryRowContext(ctx, "SELECT 1 WHERE false").Scan(&n); !errors.Is(err, sql.ErrNoRows) {
		t.Error(err)
	}
	held(0, "one row was scanned")

	if _, err := db.ExecContext(ctx, "SELECT 1"); err != nil {
		t.Error(err)
	}
	for _, end := range []func(*admit.Tx) error{(*admit.Tx).Commit, (*admit.Tx).Rollback} {
		tx, err := db.As(admit.Medium).BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		held(5, "a transaction is open")
		if err := end(tx); err != nil {
			t.Error(err)
		}
		tx.Rollback()
		held(0, "a transaction has ended")
	}
	cancelled, cancel := context.WithCancel(ctx)
	tx, err := db.BeginTx(cancelled, nil)
	if err != nil {
		t.Fatal(err)
	}
	held(1, "a transaction is open")
	cancel()
	if err := gate.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
	tx.Rollback()
	held(0, "a transaction was cancelled")

	full, err := gate.Acquire(ctx, permits)
	if err != nil {
		t.Fatal(err)
	}
	expired, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := db.As(admit.Heavy).QueryContext(expired, "SELECT 1"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	full.Release()
	if _, err := db.As(admit.Heavy).ExecContext(ctx, "SELECT 1"); err != nil {
		t.Errorf("the bound on heavy statements leaked: %v", err)
	}
}
