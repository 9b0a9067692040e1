// Package pool lends items that are expensive to open: database connections, browsers,
// clients of a service.
//
//	db := pool.New(pool.Config[*pgx.Conn]{
//		Size:        10,
//		Open:        func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, url) },
//		Close:       func(c *pgx.Conn) { c.Close(context.Background()) },
//		Check:       func(ctx context.Context, c *pgx.Conn) error { return c.Ping(ctx) },
//		CheckAfter:  30 * time.Second,
//		MaxLifetime: time.Hour,
//		Options:     []sema.Option{sema.Name("db"), sema.MaxWait(5 * time.Second)},
//	})
//	defer db.Close()
//	…
//	conn, err := db.Get(ctx)
//	if err != nil { … }
//	defer conn.Release() // or conn.Discard(), if it is broken
//	conn.Value().Exec(ctx, …)
//
// The semaphore is not the pool. A semaphore of 10 bounds how many connections are in use,
// and each user still opens and closes its own. A pool adds a list of idle items, which
// the semaphore does not protect and which does not count permits: the two are separate
// in this package, too. A [sema.Semaphore] decides which caller may have an item, in order of
// arrival, with MaxWait, MaxWaiters, observers and diagnostics. The idle list decides
// which item that is: the one used last, so that surplus items stay idle and expire.
//
// What it promises: no more items are open than Size, those being opened and closed
// included. No item is lent twice. No permit is lost, whatever panics, is cancelled or is
// copied. A caller whose context ends returns at once, and the item that is being opened
// for it goes to the next caller. Broken items are found by Check, or discarded, and
// replaced. Get and Release allocate nothing and read no clock.
//
// Do not use it for what is cheap to create: buffers belong into a [sync.Pool]. Nor for
// database/sql, which has a pool of its own: bound what its users do with a
// [sema.Semaphore]. If there is nothing to reuse, a semaphore is all it takes.
package pool
