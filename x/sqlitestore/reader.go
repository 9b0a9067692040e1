package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Reader lists and inspects the semaphores of a file, also while another process owns
// it. It does not create or change anything. Methods that write fail with
// [errors.ErrUnsupported].
//
// Each call opens the file again: the owner may change, move or remove the file between
// two calls. A Reader does not see heartbeats that the owner has not written yet, so
// every session in the file counts as alive.
type Reader struct {
	path   string
	prefix string
	once   sync.Once
	closed chan struct{}
}

// OpenReader opens a file for reading. It fails with [fs.ErrNotExist] if the file does
// not exist. It also fails if this program does not support the schema of the file.
func OpenReader(path string, o Options) (*Reader, error) {
	if err := o.check(path); err != nil {
		return nil, err
	}
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path, prefix: o.Prefix, closed: make(chan struct{})}
	if err := r.read(func(*file) error { return nil }); err != nil {
		return nil, err
	}
	return r, nil
}

// Inspect implements [fleet.Store].
func (r *Reader) Inspect(ctx context.Context, name string) (snapshot protocol.Snapshot, err error) {
	if ctx.Err() != nil {
		return snapshot, context.Cause(ctx)
	}
	err = r.read(func(f *file) error {
		stored, err := f.load(r.prefix + name)
		if err != nil {
			return err
		}
		k, err := restore(name, stored)
		switch {
		case err != nil:
			return err
		case k.state == nil:
			return withName(name, fs.ErrNotExist)
		}
		snapshot = k.state.Inspect(protocol.Micros(time.Now().UnixMicro()))
		return nil
	})
	return snapshot, err
}

// Ping implements [fleet.Examiner]. It returns the time of this machine.
func (r *Reader) Ping(ctx context.Context) (time.Time, error) {
	if ctx.Err() != nil {
		return time.Time{}, context.Cause(ctx)
	}
	err := r.read(func(*file) error { return nil })
	return time.Now(), err
}

// Examine implements [fleet.Examiner].
func (r *Reader) Examine(ctx context.Context) (all []fleet.Finding, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	err = r.read(func(f *file) error {
		version, integrity, err := f.examine(r.path)
		all = []fleet.Finding{version, integrity, logFinding(r.path)}
		return err
	})
	return all, err
}

// Listen implements [fleet.Store]. It never calls its function.
func (r *Reader) Listen(ctx context.Context, _ string, _ func(string)) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.closed:
		return wrapError(r.path, errClosed)
	}
}

// Open implements [fleet.Store]. It always fails.
func (r *Reader) Open(context.Context, string, protocol.Config, protocol.Opener) (protocol.Session, protocol.Config, error) {
	return 0, protocol.Config{}, r.rejectWrite()
}

// Apply implements [fleet.Store]. It always fails.
func (r *Reader) Apply(context.Context, string, protocol.Batch) (protocol.Reply, error) {
	return protocol.Reply{}, r.rejectWrite()
}

// Administer implements [fleet.Store]. It always fails.
func (r *Reader) Administer(context.Context, string, fleet.Command) error { return r.rejectWrite() }

func (r *Reader) rejectWrite() error {
	return wrapError(r.path, fmt.Errorf("%w: the file is open for reading only (mode=ro)", errors.ErrUnsupported))
}

// Close implements [fleet.Store].
func (r *Reader) Close() error {
	r.once.Do(func() { close(r.closed) })
	return nil
}

// read calls do in one read transaction. It may call do again.
//
// SQLite needs the files -wal and -shm to read a database with a write-ahead log, and
// would create them, as this user. A file that was closed properly has none, and is
// read without them (immutable=1). That is wrong if an owner opens the file meanwhile:
// then it is read again.
func (r *Reader) read(do func(*file) error) error {
	select {
	case <-r.closed:
		return wrapError(r.path, errClosed)
	default:
	}
	for {
		before, err := stateOf(r.path)
		if err != nil {
			return wrapError(r.path, err)
		}
		err = readOnce(r.path, !before.log, do)
		if !before.log {
			if after, changed := stateOf(r.path); changed != nil || !after.same(before) {
				continue
			}
		}
		if err != nil {
			return wrapError(r.path, err)
		}
		return nil
	}
}

// A fileState is compared with a later one, to detect whether a file was changed.
type fileState struct {
	info os.FileInfo
	log  bool // the write-ahead log exists
}

func stateOf(path string) (s fileState, err error) {
	s.info, err = os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, fmt.Errorf("%w; the first process that opens it for writing creates it", fs.ErrNotExist)
	case err != nil:
		return s, err
	}
	_, missing := os.Stat(path + "-wal")
	s.log = missing == nil
	return s, nil
}

func (s fileState) same(other fileState) bool {
	return os.SameFile(s.info, other.info) && s.info.Size() == other.info.Size() && s.info.ModTime().Equal(other.info.ModTime()) && s.log == other.log
}

func readOnce(path string, immutable bool, do func(*file) error) (err error) {
	parameters := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(" + busyTimeout + ")", "query_only(1)"}}
	if immutable {
		parameters.Set("immutable", "1")
	}
	c, err := connect(fileURL(path) + "?" + parameters.Encode())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	f := &file{connection: c, statements: newStatements(c)}
	if err := f.exec("BEGIN"); err != nil {
		return err
	}
	defer f.exec("ROLLBACK")
	marks, err := f.marks()
	if err != nil {
		return err
	}
	if err := marks.check(); err != nil {
		return err
	}
	if marks.application == 0 {
		return errors.New("the file is empty; the first process that opens it for writing creates its tables")
	}
	return do(f)
}

var (
	_ fleet.Store    = (*Reader)(nil)
	_ fleet.Examiner = (*Reader)(nil)
)
