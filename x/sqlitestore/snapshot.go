package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
)

// A snapshotReader reads the last committed state of the file on a connection of its own, so
// that long reads do not delay the writer. The write-ahead log keeps the pages that a read
// began with. One goroutine at a time uses the connection, which is opened on first use.
type snapshotReader struct {
	turn       chan struct{} // holds a token; its receiver uses the fields below
	file       *file         // nil: not open
	closed     bool
	beforeRead func() // for tests; nil otherwise
}

func newSnapshotReader() snapshotReader {
	r := snapshotReader{turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// snapshot calls do with a file to read from. After an error the connection is opened again
// for the next call.
func (s *sharedFile) snapshot(ctx context.Context, do func(*file) error) (err error) {
	r := &s.snapshots
	select {
	case <-r.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { r.turn <- struct{}{} }()
	if r.closed {
		return s.wrap(errClosed)
	}
	if r.file == nil {
		if r.file, err = s.openSnapshots(); err != nil {
			return s.wrap(err)
		}
	}
	if r.beforeRead != nil {
		r.beforeRead()
	}
	if err := do(r.file); err != nil {
		r.file.close() // its error does not matter
		r.file = nil
		return s.wrap(err)
	}
	return nil
}

// openSnapshots opens the file that the writer has open. Another one may have its path, if an
// operator moved the file.
func (s *sharedFile) openSnapshots() (*file, error) {
	own, err := s.owner.database.Stat()
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(s.path); err != nil || !os.SameFile(own, info) {
		return nil, errors.Join(fmt.Errorf("the file was moved or replaced while it is open; move it back, or restart this process"), err)
	}
	parameters := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(" + busyTimeout + ")", "query_only(1)"}}
	c, err := connect(fileURL(s.path) + "?" + parameters.Encode())
	if err != nil {
		return nil, err
	}
	return &file{connection: c, statements: newStatements(c)}, nil
}

// close closes the connection for good.
func (r *snapshotReader) close() error {
	<-r.turn
	defer func() { r.turn <- struct{}{} }()
	r.closed = true
	if r.file == nil {
		return nil
	}
	err := r.file.close()
	r.file = nil
	return err
}
