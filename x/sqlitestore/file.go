package sqlitestore

import (
	_ "embed" // for the schema
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
)

// A file is an open SQLite database with the statements that the writer needs.
type file struct {
	*connection
	statements
	values  valuesBuffer
	size    *statement // returns the size of the database in bytes, including the log
	reserve reserve
}

const (
	// applicationID marks the files of this program: "Sema".
	applicationID = 0x53656d61
	// unreleasedID marks the files of versions before the first release: "sema".
	unreleasedID = 0x73656d61
	// schemaVersion is the version of the schema that this program reads and writes.
	schemaVersion = 1
	// busyTimeout bounds, in milliseconds, how long a request waits for another process
	// that writes to the file. No process should.
	busyTimeout = "2000"
	// maxLogSize is the size, in bytes, to which the write-ahead log is truncated when
	// it is reused from its beginning. A long read transaction can make it larger.
	maxLogSize = "16777216"
	// commitsBetweenCheckpoints is the number of commits after which the log is
	// checkpointed, after the replies were sent. SQLite would do so inside a commit,
	// while callers wait. It still does if the log has pagesInLog pages, which only
	// large groups reach.
	commitsBetweenCheckpoints = 256
	pagesInLog                = "8192"
)

//go:embed schema.sql
var schema string

func synchronous(normal bool) string {
	if normal {
		return "normal"
	}
	return "full"
}

// openFile opens a database. If the owner's descriptor is not nil, space is reserved
// beyond the end of the file.
func openFile(path string, normal bool, database *os.File) (*file, error) {
	c, err := connect(dsn(path, normal))
	if err != nil {
		return nil, err
	}
	f := &file{connection: c, statements: newStatements(c), size: c.statement("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")}
	if err := f.prepareSchema(); err != nil {
		c.close()
		return nil, err
	}
	f.reserve.database = database
	f.reserve.refill()
	return f, nil
}

func dsn(path string, normal bool) string {
	pragmas := url.Values{"_pragma": {
		"busy_timeout(" + busyTimeout + ")", "journal_size_limit(" + maxLogSize + ")", "wal_autocheckpoint(" + pagesInLog + ")", "synchronous(" + synchronous(normal) + ")",
		"fullfsync(1)", "checkpoint_fullfsync(1)", // on a Mac fsync alone does not wait for the disk
	}}
	return fileURL(path) + "?" + pragmas.Encode()
}

// fileURL returns the URL of a file for SQLite.
func fileURL(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/path
	}
	return "file://" + (&url.URL{Path: path}).EscapedPath()
}

// marks identifies the program that created a file.
type marks struct{ tables, application, version int64 }

func (f *file) marks() (m marks, err error) {
	err = f.query(`SELECT (SELECT count(*) FROM sqlite_schema), (SELECT application_id FROM pragma_application_id),
		(SELECT user_version FROM pragma_user_version)`,
		func(r *row) { m = marks{tables: r.integer(), application: r.integer(), version: r.integer()} })
	return m, err
}

// check rejects a file of another program, or of an incompatible version of this one.
func (m marks) check() error {
	switch {
	case m.application == unreleasedID:
		return errors.New("the file was created by an unreleased version of Sema; delete it, with its -wal and -shm, or use another file")
	case m.application != applicationID && (m.tables > 0 || m.application != 0):
		return errors.New("the file is a database of another program; use another file")
	case m.version > schemaVersion:
		return fmt.Errorf("the file was written by a newer program (schema %d, this one supports %d); upgrade this program", m.version, schemaVersion)
	}
	return nil
}

// prepareSchema creates the tables of a new file, and rejects a file that this
// program cannot use.
func (f *file) prepareSchema() error {
	found, err := f.marks()
	if err != nil {
		return err
	}
	if err := found.check(); err != nil {
		return err
	}
	var mode string
	if err := f.query("PRAGMA journal_mode(wal)", func(r *row) { mode = r.text() }); err != nil {
		return err
	}
	switch {
	case mode != "wal":
		return fmt.Errorf("the file system does not support a write-ahead log (journal mode is %s); use a local one", mode)
	case found.application == applicationID:
		return nil
	}
	return f.exec(fmt.Sprintf("BEGIN IMMEDIATE; %s; PRAGMA application_id(%d); PRAGMA user_version(%d); COMMIT", schema, applicationID, schemaVersion))
}

// begin starts a transaction. It takes SQLite's write lock at once, not with the first
// write.
func (f *file) begin() error {
	_, err := f.statements.begin.exec(nil)
	return err
}

func (f *file) commit() error {
	_, err := f.statements.commit.exec(nil)
	return err
}

// rollback ends the transaction, if there is one. It fails if the connection is
// broken.
func (f *file) rollback() error {
	f.exec("ROLLBACK") // fails if SQLite has rolled back by itself
	if err := f.begin(); err != nil {
		return err
	}
	return f.exec("ROLLBACK")
}

var errBroken = errors.New("the connection to the file is broken; it is opened again for the next request")

// addAdvice adds advice to an error of SQLite. A temporary error also wraps
// [sema.ErrUnavailable].
func addAdvice(err error) error {
	var failed *sqlite.Error
	if isFull(err) {
		return fmt.Errorf("%w: %w: %w; make room on the disk: the store then recovers by itself", sema.ErrUnavailable, fleet.FaultFull, err)
	}
	if !errors.As(err, &failed) {
		return err
	}
	switch failed.Code() & 0xff { // without the extended code
	case sqlite3.SQLITE_IOERR:
		return fmt.Errorf("%w: %w; check the disk: the store recovers by itself when the disk does", sema.ErrUnavailable, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%w: %w; another program writes to the file: find it (fuser) and stop it", sema.ErrUnavailable, err)
	case sqlite3.SQLITE_READONLY:
		return fmt.Errorf("%w: %w; this process must be able to write to the file and to its directory", fleet.FaultReadOnly, err)
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return fmt.Errorf("%w: %w; this process must be able to write to the file and to its directory", fleet.FaultAccess, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w; the file is damaged, or not a database; move it away, wait for the longest TTL of its semaphores, and start again with a new file", err)
	}
	return err
}
