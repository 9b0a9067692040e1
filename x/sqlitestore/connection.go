package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"modernc.org/sqlite"
)

// A connection is a connection to SQLite, for one goroutine. It bypasses the pool of
// database/sql, which closes and opens connections by itself: this package has to
// control that.
type connection struct {
	conn       driver.Conn
	statements []driver.Stmt
}

var background = context.Background()

func connect(dsn string) (*connection, error) {
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	conn, err := connector.Connect(background)
	if err != nil {
		return nil, err
	}
	return &connection{conn: conn}, nil
}

// exec executes statements that are rarely used.
func (c *connection) exec(query string) error {
	_, err := c.conn.(driver.ExecerContext).ExecContext(background, query, nil)
	return err
}

// statement returns a prepared statement, for frequent use.
func (c *connection) statement(query string) *statement { return &statement{on: c, query: query} }

// query executes a rarely used statement and calls read for each row.
func (c *connection) query(query string, read func(*row)) error {
	found, err := c.conn.(driver.QueryerContext).QueryContext(background, query, nil)
	if err != nil {
		return err
	}
	return readAll(found, read)
}

// close closes the statements and then the connection: SQLite keeps a connection, with
// its locks, as long as it has statements.
func (c *connection) close() error {
	for _, s := range c.statements {
		s.Close()
	}
	return c.conn.Close()
}

// A statement is compiled when it is first used, and stays compiled until the
// connection is closed.
type statement struct {
	on       *connection
	query    string
	compiled driver.Stmt
}

func (s *statement) compile() (driver.Stmt, error) {
	if s.compiled != nil {
		return s.compiled, nil
	}
	compiled, err := s.on.conn.Prepare(s.query)
	if err != nil {
		return nil, fmt.Errorf("%w in %q", err, s.query)
	}
	s.compiled = compiled
	s.on.statements = append(s.on.statements, compiled)
	return compiled, nil
}

// values contains the parameters of a statement.
type values []driver.NamedValue

func (v values) with(more ...driver.Value) values {
	for _, value := range more {
		v = append(v, driver.NamedValue{Value: value})
	}
	return v
}

// A valuesBuffer is a buffer for the values of one statement after the other.
type valuesBuffer struct {
	buffer values
	used   int
}

// maxBuffered is the number of values, of 48 bytes each, that a buffer keeps space for: those of 128
// sessions.
const maxBuffered = 128 * 14

// begin returns an empty buffer with space for n values. It is valid until end.
func (b *valuesBuffer) begin(n int) values {
	if cap(b.buffer) < n {
		b.buffer = make(values, 0, n)
	}
	b.used = n
	return b.buffer[:0]
}

// end drops what the values refer to.
func (b *valuesBuffer) end() {
	clear(b.buffer[:b.used])
	if cap(b.buffer) > maxBuffered {
		b.buffer = nil
	}
}

func (s *statement) exec(v values) (driver.Result, error) {
	compiled, err := s.compile()
	if err != nil {
		return nil, err
	}
	for i := range v {
		v[i].Ordinal = i + 1
	}
	return compiled.(driver.StmtExecContext).ExecContext(background, v)
}

// find executes the statement with one parameter and calls read for each row.
func (s *statement) find(key driver.Value, read func(*row)) error {
	return s.findBy(values{}.with(key), read)
}

// findBy executes the statement with any number of parameters and calls read for each row.
func (s *statement) findBy(v values, read func(*row)) error {
	compiled, err := s.compile()
	if err != nil {
		return err
	}
	for i := range v {
		v[i].Ordinal = i + 1
	}
	found, err := compiled.(driver.StmtQueryContext).QueryContext(background, v)
	if err != nil {
		return err
	}
	return readAll(found, read)
}

func readAll(found driver.Rows, read func(*row)) (err error) {
	defer func() { err = errors.Join(err, found.Close()) }()
	r := &row{columns: make([]driver.Value, len(found.Columns()))}
	for {
		switch err := found.Next(r.columns); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		r.next = 0
		if read(r); r.err != nil {
			return r.err
		}
	}
}

// A row is read column by column. A column of an unexpected type is read as zero and
// sets err.
type row struct {
	columns []driver.Value
	next    int
	err     error
}

func column[T any](r *row) (value T) {
	value, ok := r.columns[r.next].(T)
	if !ok {
		r.err = errors.Join(r.err, fmt.Errorf("column %d is %v, want %T", r.next+1, r.columns[r.next], value))
	}
	r.next++
	return value
}

func (r *row) integer() int64 { return column[int64](r) }
func (r *row) text() string   { return column[string](r) }
func (r *row) flag() bool     { return r.integer() != 0 }
