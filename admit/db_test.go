package admit_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
)

// A fakeDriver is a database whose parts a test controls. Package x/examples/dbadmit tests a
// real one.
type fakeDriver struct {
	begin    func() error
	rollback func()
	opened   atomic.Int64
}

func (d *fakeDriver) Connect(context.Context) (driver.Conn, error) {
	d.opened.Add(1)
	return &fakeConn{d}, nil
}
func (d *fakeDriver) Driver() driver.Driver { return nil }

type fakeConn struct{ *fakeDriver }

func (c *fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *fakeConn) Close() error                        { return nil }
func (c *fakeConn) Begin() (driver.Tx, error)           { return c, c.begin() }
func (c *fakeConn) Commit() error                       { return nil }
func (c *fakeConn) Rollback() error                     { c.rollback(); return nil }
func (c *fakeConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &fakeRows{left: 2}, nil
}

// fakeRows are two rows and an error.
type fakeRows struct{ left int }

func (r *fakeRows) Columns() []string { return []string{"name"} }
func (r *fakeRows) Close() error      { return nil }
func (r *fakeRows) Next(dest []driver.Value) error {
	if r.left--; r.left < 0 {
		return io.ErrUnexpectedEOF
	}
	dest[0] = []byte("value")
	return nil
}

func fakeDB(t *testing.T, d *fakeDriver) (*admit.DB, *sema.Semaphore) {
	db := sql.OpenDB(d)
	t.Cleanup(func() { db.Close() })
	gate := sema.New(100)
	return admit.NewDB(db, gate, 1), gate
}

// TestDB_CancelledTransactionHoldsItsPermitUntilItIsRolledBack cancels a transaction whose
// rollback takes long. Its connection is in use until then.
func TestDB_CancelledTransactionHoldsItsPermitUntilItIsRolledBack(t *testing.T) {
	t.Parallel()
	for range 20 { // the permit must not depend on which goroutine is first
		begun, finish := make(chan bool), make(chan bool)
		db, gate := fakeDB(t, &fakeDriver{begin: func() error { return nil }, rollback: func() {
			close(begun)
			<-finish
		}})
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		<-begun
		ended := make(chan error, 1)
		go func() { ended <- tx.Commit() }()
		idle, stop := context.WithCancel(t.Context())
		go func() {
			for range 100 { // time for a release that comes too early
				db.Unwrap().Stats()
			}
			stop()
		}()
		if gate.WaitIdle(idle) == nil {
			t.Fatal("the permit was returned before the rollback has ended")
		}
		close(finish)
		if err := <-ended; err == nil {
			t.Error("a cancelled transaction was committed")
		}
		if err := gate.WaitIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
		for db.Unwrap().Stats().InUse > 0 { // the pool may learn of it a moment later
			time.Sleep(time.Millisecond)
		}
	}
}

func TestDB_BeginTxReturnsThePermitIfItFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		begin func() error
		want  error
		opens int64
	}{
		"error":          {func() error { return broken }, broken, 1},
		"bad connection": {func() error { return driver.ErrBadConn }, driver.ErrBadConn, 3},
		"panic":          {func() error { panic("broken") }, nil, 1},
	} {
		d := &fakeDriver{begin: test.begin}
		db, gate := fakeDB(t, d)
		panicked := panics(func() {
			if _, err := db.As(admit.Heavy).BeginTx(t.Context(), nil); !errors.Is(err, test.want) || err == nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if panicked != (name == "panic") || gate.Stats().InUse != 0 || d.opened.Load() != test.opens {
			t.Errorf("%s: panicked %v, %d in use, %d connections opened", name, panicked, gate.Stats().InUse, d.opened.Load())
		}
	}
	calls := 0
	db, _ := fakeDB(t, &fakeDriver{rollback: func() {}, begin: func() error {
		if calls++; calls == 1 {
			return driver.ErrBadConn // the server has restarted
		}
		return nil
	}})
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatalf("a connection that had gone bad was not replaced: %v", err)
	}
	tx.Rollback()
}

func TestRow_RejectsRawBytes(t *testing.T) {
	t.Parallel()
	db, gate := fakeDB(t, &fakeDriver{})
	var raw sql.RawBytes
	if err := db.QueryRowContext(t.Context(), "").Scan(&raw); err == nil {
		t.Errorf("%q is memory of rows that are closed", raw)
	}
	var value string
	if err := db.QueryRowContext(t.Context(), "").Scan(&value); err != nil || value != "value" {
		t.Errorf("%q, %v", value, err)
	}
	if n := gate.Stats().InUse; n != 0 {
		t.Errorf("%d in use", n)
	}
}

func TestRows_AnErrorReturnsThePermit(t *testing.T) {
	t.Parallel()
	db, gate := fakeDB(t, &fakeDriver{})
	rows, err := db.As(admit.Heavy).QueryContext(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for raw := (sql.RawBytes)(nil); rows.Next(); n++ {
		if err := rows.Scan(&raw); err != nil || string(raw) != "value" {
			t.Errorf("%q, %v", raw, err)
		}
	}
	if n != 2 || !errors.Is(rows.Err(), io.ErrUnexpectedEOF) || gate.Stats().InUse != 0 {
		t.Errorf("%d rows, %v, %d in use", n, rows.Err(), gate.Stats().InUse)
	}
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
}
