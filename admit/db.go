package admit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"

	"github.com/sema-go/sema"
)

// A Weight is what a statement takes of the gate of a [DB], by kind.
type Weight int64

// The weights of statements. A gate of 100 permits runs 100 light statements at once, or
// 20 medium ones, or 4 heavy ones.
const (
	Light  Weight = 1  // a look-up by key
	Medium Weight = 5  // a join, a page of a list
	Heavy  Weight = 25 // a report, a scan
)

// A DB puts a gate in front of a [sql.DB], so that a few heavy statements cannot take all of
// the database. It is a wrapper and not a driver, since a driver does not know how heavy a
// statement is, nor its context. [DB.As] selects the weight; the methods of the DB itself
// are those of light statements. It is safe for concurrent use.
//
// The permit is held until the rows are closed, the transaction ends or the statement has
// run. Rows that are read to their end close themselves. Statements of a [Tx] run under its
// permit. Any other statement takes permits of its own, also while the caller holds rows or
// a transaction: callers that all do so can wait for each other for ever, unless their
// contexts end or the gate has a MaxWait.
type DB struct {
	Statements
	db    *sql.DB
	gate  sema.Gate
	heavy *sema.Semaphore // bounds heavy statements; nil: no bound of their own
}

// NewDB returns a DB. Statements acquire their weight of gate; a common gate is
// sema.New(100). At most maxHeavy heavy statements run at once, whatever the gate admits, so
// that they leave room for others; 0: no bound of their own.
func NewDB(db *sql.DB, gate sema.Gate, maxHeavy int64) *DB {
	if db == nil || gate == nil || maxHeavy < 0 {
		panic("admit: NewDB: want a database, a gate and a bound of at least 0")
	}
	d := &DB{db: db, gate: gate}
	if maxHeavy > 0 {
		d.heavy = sema.New(maxHeavy, sema.Name("heavy"))
	}
	d.Statements = d.As(Light)
	return d
}

// Unwrap returns the database without the gate.
func (d *DB) Unwrap() *sql.DB { return d.db }

// As returns the database for statements of a weight.
func (d *DB) As(w Weight) Statements {
	if w < 1 {
		panic("admit: DB.As: want a positive weight")
	}
	return Statements{d, w}
}

// Statements are the methods of a [DB] for statements of one weight.
type Statements struct {
	d      *DB
	weight Weight
}

// acquire acquires the permits of a statement. Heavy statements wait for each other first,
// so that those which must wait hold nothing of the gate.
func (s Statements) acquire(ctx context.Context) (permits, error) {
	var p permits
	var err error
	if s.d.heavy != nil && s.weight >= Heavy {
		if p.heavy, err = s.d.heavy.Acquire(ctx, 1); err != nil {
			return p, err
		}
	}
	if p.gate, err = s.d.gate.Acquire(ctx, int64(s.weight)); err != nil {
		p.release()
	}
	return p, err
}

// permits are what a statement holds.
type permits struct{ gate, heavy sema.Permit }

func (p permits) release() {
	p.gate.Release()
	p.heavy.Release()
}

// ExecContext executes a statement as [sql.DB.ExecContext] does, under a permit.
func (s Statements) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	p, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer p.release()
	return s.d.db.ExecContext(ctx, query, args...)
}

// QueryContext runs a query as [sql.DB.QueryContext] does, under a permit that is held until
// the rows are closed.
func (s Statements) QueryContext(ctx context.Context, query string, args ...any) (*Rows, error) {
	p, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	released := false
	defer func() {
		if !released { // the driver has panicked
			p.release()
		}
	}()
	rows, err := s.d.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	released = true
	return newRows(rows, p), nil
}

// QueryRowContext runs a query as [sql.DB.QueryRowContext] does, under a permit that is held
// until Scan.
func (s Statements) QueryRowContext(ctx context.Context, query string, args ...any) *Row {
	rows, err := s.QueryContext(ctx, query, args...)
	return &Row{rows, err}
}

// PingContext calls [sql.DB.PingContext] without a permit: it checks the database, not the
// gate.
func (s Statements) PingContext(ctx context.Context) error { return s.d.db.PingContext(ctx) }

// BeginTx begins a transaction as [sql.DB.BeginTx] does, under a permit that is held until
// the transaction ends.
func (s Statements) BeginTx(ctx context.Context, opts *sql.TxOptions) (*Tx, error) {
	p, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	begun := false
	defer func() {
		if !begun { // it has failed, or the driver has panicked
			p.release()
		}
	}()
	conn, tx, err := s.begin(ctx, opts)
	if err != nil {
		return nil, err
	}
	begun = true
	t := &Tx{Tx: tx, end: func() {
		defer p.release()
		returnConn(conn, ctx.Err() != nil)
	}}
	// A transaction ends by itself when its context does.
	t.stop = context.AfterFunc(ctx, t.end)
	return t, nil
}

// begin begins a transaction on a connection of its own: closing that is the only way to
// wait until database/sql has rolled back a transaction whose context ended. A connection
// that has gone bad is replaced, as [sql.DB.BeginTx] does.
func (s Statements) begin(ctx context.Context, opts *sql.TxOptions) (*sql.Conn, *sql.Tx, error) {
	for tries := max(2, s.d.db.Stats().Idle); ; tries-- {
		conn, err := s.d.db.Conn(ctx)
		if err != nil {
			return nil, nil, err
		}
		tx, err := conn.BeginTx(ctx, opts)
		if err == nil {
			return conn, tx, nil
		}
		conn.Close()
		if tries == 0 || !errors.Is(err, driver.ErrBadConn) {
			return nil, nil, err
		}
	}
}

// returnConn waits until the transaction on a connection has ended, and returns the
// connection to the pool. After a cancelled transaction database/sql discards a connection
// that it cannot reset, and so does returnConn.
func returnConn(conn *sql.Conn, cancelled bool) {
	if cancelled {
		_ = conn.Raw(func(c any) error {
			_, resets := c.(driver.SessionResetter)
			if _, validates := c.(driver.Validator); resets && validates {
				return nil
			}
			return driver.ErrBadConn
		})
	}
	conn.Close()
}

// Rows are [sql.Rows] that hold a permit until they are closed.
type Rows struct {
	*sql.Rows
	permits permits
	cleanup runtime.Cleanup
}

// newRows returns rows with their permit. Rows that were dropped without a Close return it
// when they are garbage-collected.
func newRows(rows *sql.Rows, p permits) *Rows {
	r := &Rows{Rows: rows, permits: p}
	r.cleanup = runtime.AddCleanup(r, permits.release, p)
	return r
}

// Next advances to the next row, as [sql.Rows.Next] does.
func (r *Rows) Next() bool { return r.Rows.Next() || r.ended() }

// NextResultSet advances to the next result set, as [sql.Rows.NextResultSet] does.
func (r *Rows) NextResultSet() bool { return r.Rows.NextResultSet() || r.ended() }

// ended returns the permit if the rows have closed themselves, because they were read to
// the end of the last result set or because of an error. It returns false.
func (r *Rows) ended() bool {
	if _, err := r.Rows.Columns(); err != nil { // the only way to find out
		r.Close()
	}
	return false
}

// Close closes the rows and returns the permit.
func (r *Rows) Close() error {
	defer r.cleanup.Stop()
	defer r.permits.release()
	return r.Rows.Close()
}

// A Row is the result of a query for one row.
type Row struct {
	rows *Rows
	err  error
}

// Err returns the error of the query.
func (r *Row) Err() error {
	if r.err != nil {
		return r.err
	}
	return r.rows.Err()
}

// Scan copies the row into dest, as [sql.Row.Scan] does, and returns the permit. It returns
// [sql.ErrNoRows] if there is none.
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	for _, d := range dest {
		if _, ok := d.(*sql.RawBytes); ok { // its memory is that of the rows, which are closed
			return errors.New("sql: RawBytes isn't allowed on Row.Scan")
		}
	}
	if !r.rows.Rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	return r.rows.Close()
}

// A Tx is a [sql.Tx] that holds a permit until it ends.
type Tx struct {
	*sql.Tx
	stop func() bool // prevents end when the context ends; reports whether it did
	end  func()      // waits until the transaction has ended, and returns connection and permit
}

// Commit commits the transaction and returns the permit. If the context has ended, the
// permit is returned when the transaction is rolled back.
func (t *Tx) Commit() error {
	defer t.ended()
	return t.Tx.Commit()
}

// Rollback aborts the transaction and returns the permit, as Commit does.
func (t *Tx) Rollback() error {
	defer t.ended()
	return t.Tx.Rollback()
}

// ended returns the permit, once: the first stop reports true, unless the context has ended
// and calls end itself.
func (t *Tx) ended() {
	if t.stop() {
		t.end()
	}
}
