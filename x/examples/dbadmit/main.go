// Command dbadmit runs light, medium and heavy statements on PostgreSQL through an
// [admit.DB]: 100 permits, of which a light statement takes 1, a medium one 5 and a heavy
// one 25. It prints how many of each kind ran at once. Heavy statements are bounded to two,
// so that they leave room for the others.
//
//	go run ./x/examples/dbadmit postgres://localhost/postgres
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
)

const (
	permits  = 100
	maxHeavy = 2
	each     = 30 // statements of each kind
)

func main() {
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: dbadmit URL")
		os.Exit(2)
	}
	if err := run(context.Background(), flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "dbadmit:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	conn, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer conn.Close()
	gate := sema.New(permits, sema.Name("db"))
	db := admit.NewDB(conn, gate, maxHeavy)
	var mostUsed atomic.Int64
	var wg sync.WaitGroup
	for _, kind := range []struct {
		name   string
		weight admit.Weight
	}{{"light", admit.Light}, {"medium", admit.Medium}, {"heavy", admit.Heavy}} {
		k := &meter{}
		defer func() {
			fmt.Printf("%s: %d statements, at most %d at once, %d failed\n", kind.name, each, k.most.Load(), k.failed.Load())
		}()
		for range each {
			wg.Go(func() {
				if err := query(ctx, db.As(kind.weight), k, func() { raise(&mostUsed, gate.Stats().InUse) }); err != nil {
					k.failed.Add(1)
				}
			})
		}
	}
	wg.Wait()
	defer func() {
		fmt.Printf("at most %d of %d permits in use, %d now\n", mostUsed.Load(), permits, gate.Stats().InUse)
	}()
	return nil
}

// A meter counts the statements of one kind.
type meter struct{ now, most, failed atomic.Int64 }

// query reads ten rows slowly. The permit is held until the rows end.
func query(ctx context.Context, db admit.Statements, k *meter, reading func()) error {
	rows, err := db.QueryContext(ctx, "SELECT i, pg_sleep(0.002) FROM generate_series(1, 10) AS i")
	if err != nil {
		return err
	}
	defer rows.Close()
	raise(&k.most, k.now.Add(1))
	defer k.now.Add(-1)
	for rows.Next() {
		reading()
	}
	return rows.Err()
}

// raise sets a maximum.
func raise(most *atomic.Int64, n int64) {
	for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
	}
}
