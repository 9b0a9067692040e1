// Command pgpool counts the connections that a program opens to PostgreSQL: with a
// semaphore alone, with a pool, and with a pool whose idle connections the server has
// killed.
//
//	go run ./x/examples/pgpool postgres://localhost/postgres
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
)

const (
	size    = 10
	callers = 30
)

func main() {
	queries := flag.Int("queries", 10, "queries of each caller")
	flag.Parse()
	if flag.NArg() != 1 || *queries < 1 {
		fmt.Fprintln(os.Stderr, "usage: pgpool [-queries N] URL")
		os.Exit(2)
	}
	if err := run(context.Background(), flag.Arg(0), *queries); err != nil {
		fmt.Fprintln(os.Stderr, "pgpool:", err)
		os.Exit(1)
	}
}

// run prints the connections opened, and the queries that failed.
func run(ctx context.Context, url string, queries int) error {
	conf, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	conf.RuntimeParams["application_name"] = "pgpool " + strconv.Itoa(os.Getpid())
	d := &database{conf: conf}

	limit := sema.New(size, sema.Name("db"))
	d.measure("semaphore alone", queries, func() error { return d.queryUnder(ctx, limit) })

	conns := newPool(d)
	defer conns.Close()
	query := func() error { return conns.Do(ctx, queryWith) }
	d.measure("pool", queries, query)
	killed, err := d.killIdle(ctx)
	if err != nil {
		return err
	}
	d.measure(fmt.Sprintf("pool, %d connections killed", killed), queries, query)
	fmt.Printf("%d checks found a broken connection\n", conns.Stats().CheckErrors)
	return nil
}

// queryUnder opens a connection for one query, under a permit. The semaphore bounds how
// many are open at once, and not how many are opened.
func (d *database) queryUnder(ctx context.Context, limit sema.Gate) error {
	return sema.Do(ctx, limit, 1, func(ctx context.Context) error {
		conn, err := d.open(ctx)
		if err != nil {
			return err
		}
		defer closeConn(conn)
		return query(ctx, conn)
	})
}

// newPool returns a pool of connections, which are checked before they are lent.
func newPool(d *database) *pool.Pool[*pgx.Conn] {
	return pool.New(pool.Config[*pgx.Conn]{
		Size: size, Open: d.open, Close: closeConn,
		Check:   func(ctx context.Context, c *pgx.Conn) error { return c.Ping(ctx) },
		Options: []sema.Option{sema.Name("db")},
	})
}

// queryWith queries with a connection of the pool, and discards it if it is broken.
func queryWith(ctx context.Context, item pool.Item[*pgx.Conn]) error {
	err := query(ctx, item.Value())
	if item.Value().IsClosed() {
		item.Discard()
	}
	return err
}

func query(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "select pg_sleep(0.001)")
	return err
}

// A database opens connections, and counts them.
type database struct {
	conf   *pgx.ConnConfig
	opened atomic.Int64
}

func (d *database) open(ctx context.Context) (*pgx.Conn, error) {
	d.opened.Add(1)
	return pgx.ConnectConfig(ctx, d.conf)
}

func closeConn(c *pgx.Conn) { c.Close(context.Background()) }

// measure runs queries of many callers at once, and prints what they took.
func (d *database) measure(what string, queries int, query func() error) {
	before, failed := d.opened.Load(), atomic.Int64{}
	var working sync.WaitGroup
	for range callers {
		working.Go(func() {
			for range queries {
				if err := query(); err != nil {
					fmt.Fprintln(os.Stderr, "pgpool:", err)
					failed.Add(1)
				}
			}
		})
	}
	working.Wait()
	fmt.Printf("%s: %d queries, %d connections opened, %d failed\n", what, callers*queries, d.opened.Load()-before, failed.Load())
}

// killIdle makes the server close all connections of this program, and returns their
// number. It waits until they are gone.
func (d *database) killIdle(ctx context.Context) (killed int, err error) {
	conf := d.conf.Copy()
	delete(conf.RuntimeParams, "application_name")
	admin, err := pgx.ConnectConfig(ctx, conf)
	if err != nil {
		return 0, err
	}
	defer closeConn(admin)
	const count = "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity where application_name = $1"
	err = admin.QueryRow(ctx, count, d.conf.RuntimeParams["application_name"]).Scan(&killed)
	return killed, err
}
