package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A sharedFile is a file that the stores of this process share. One goroutine, which
// runs the writer, owns the semaphores in memory and the connection.
type sharedFile struct {
	path   string
	normal bool
	stores int // number of stores that use it; guarded by sharedFiles.mu

	requests chan *request
	quit     chan struct{}
	done     chan struct{} // closed when the writer's goroutine has ended

	owner     *owner
	listeners listeners
	writer    writer
	snapshots snapshotReader
	group     []*request // the buffer of gather; used by the writer's goroutine
	batches   sync.Pool  // of *batchRequest, for reuse
}

// sharedFiles contains the open files of this process, by path.
var sharedFiles = struct {
	mu     sync.Mutex
	byPath map[string]*sharedFile
}{byPath: map[string]*sharedFile{}}

// share returns the sharedFile for a path: the existing one, or a new one.
func share(path string, normal bool) (*sharedFile, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	sharedFiles.mu.Lock()
	defer sharedFiles.mu.Unlock()
	s := sharedFiles.byPath[path]
	switch {
	case s == nil:
		if err := checkNotOpenLocked(path); err != nil {
			return nil, err
		}
		if s, err = start(path, normal); err != nil {
			return nil, err
		}
		sharedFiles.byPath[path] = s
	case s.normal != normal:
		return nil, invalid("%s is open in this process with synchronous=%s; use the same value everywhere", path, synchronous(s.normal))
	}
	s.stores++
	return s, nil
}

// checkNotOpenLocked rejects a file that this process has open under another path. Such a
// file must not even be opened: closing it again would drop SQLite's locks. The caller
// holds sharedFiles.mu.
func checkNotOpenLocked(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil // start returns the error
	}
	for other, s := range sharedFiles.byPath {
		if there, err := s.owner.database.Stat(); err == nil && os.SameFile(info, there) {
			return wrapError(path, fmt.Errorf("%w: this process has it open as %s; open it under that path", ErrOwned, other))
		}
	}
	return nil
}

// resolve returns the canonical path of a file. The file itself need not exist.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", invalid("path %q: %v", path, err)
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil {
		return resolved, nil
	}
	if _, there := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) || there == nil {
		return "", invalid("path %q cannot be resolved: %v", path, err)
	}
	directory, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", invalid("the directory of %q does not exist (create it first): %v", path, err)
	}
	return filepath.Join(directory, filepath.Base(path)), nil
}

func start(path string, normal bool) (*sharedFile, error) {
	o, err := own(path)
	if err != nil {
		return nil, err
	}
	f, err := openFile(path, normal, o.database)
	if isFull(err) { // even the index of the log, of 32 KB, needs space
		(&reserve{database: o.database}).release()
		f, err = openFile(path, normal, o.database)
	}
	if err != nil {
		o.release()
		return nil, wrapError(path, err)
	}
	s := &sharedFile{
		path: path, normal: normal, owner: o,
		requests: make(chan *request, maxGroup), quit: make(chan struct{}), done: make(chan struct{}),
		snapshots: newSnapshotReader(),
	}
	s.writer = writer{
		file: f, open: func() (*file, error) { return openFile(path, normal, o.database) },
		wrap: s.wrap, notify: s.listeners.notify,
		now:     func() protocol.Micros { return protocol.Micros(time.Now().UnixMicro()) },
		entries: map[string]*entry{}, live: map[string]*entry{},
	}
	if s.writer.unread, err = f.inUse(); err != nil {
		f.close()
		o.release()
		return nil, wrapError(path, err)
	}
	go s.run()
	return s, nil
}

// release ends the use by one store. The last store closes the file.
func (s *sharedFile) release() error {
	sharedFiles.mu.Lock()
	defer sharedFiles.mu.Unlock()
	if s.stores--; s.stores > 0 {
		return nil
	}
	close(s.quit)
	<-s.done
	delete(sharedFiles.byPath, s.path)
	err := errors.Join(s.snapshots.close(), s.writer.close()) // the writer last, so that it checkpoints the log
	s.owner.release()
	if err != nil {
		return s.wrap(err)
	}
	return nil
}

// run implements the writer's goroutine, with group commit: the requests that arrive
// while a group is being committed form the next group. So a request never waits for
// others to arrive, and under load each commit is shared.
func (s *sharedFile) run() {
	defer close(s.done)
	ticks := time.NewTimer(maxTick)
	defer ticks.Stop()
	for {
		select {
		case r := <-s.requests:
			s.serve(r)
		case <-ticks.C:
			s.writer.tick()
			ticks.Reset(s.writer.untilTick())
		case <-s.quit:
			for len(s.requests) > 0 {
				s.serve(<-s.requests)
			}
			return
		}
	}
}

// serve serves a group that begins with a request.
func (s *sharedFile) serve(first *request) {
	group := s.gather(first)
	s.writer.serve(group)
	clear(group) // the buffer must not keep what the requests refer to
}

// A group is bounded, so that its requests do not wait for an unlimited number of later
// ones.
const (
	maxGroup = 512   // requests
	maxSize  = 8_192 // approximate number of ops in them
)

// maxYields is the number of times that the writer yields the processor before a group
// is closed: goroutines that are ready to run may be about to join the group. A commit
// costs as much for one request as for twenty. Yielding takes less than a microsecond
// if no goroutine is ready. If a yield takes longer than maxYieldTime, the other
// goroutines have other work, and the group is closed.
const (
	maxYields    = 3
	maxYieldTime = 100 * time.Microsecond
)

// gather returns a group: a request and those that have arrived already, or are about to. The
// group is valid until the next call.
func (s *sharedFile) gather(first *request) []*request {
	group, size := append(s.group[:0], first), first.size
	defer func() { s.group = group }()
	for yielded := 0; len(group) < maxGroup && size < maxSize; {
		select {
		case r := <-s.requests:
			group = append(group, r)
			size += r.size
		default:
			if yielded == maxYields {
				return group
			}
			start := time.Now()
			runtime.Gosched()
			if yielded++; time.Since(start) > maxYieldTime {
				yielded = maxYields
			}
		}
	}
	return group
}

// await sends a request to the writer and waits for its result.
func (s *sharedFile) await(ctx context.Context, r *request) error {
	if r.ended == nil {
		r.ended = make(chan error, 1)
	}
	select {
	case s.requests <- r: // locks one channel instead of three, of which one is shared by all callers
	default:
		select {
		case s.requests <- r:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.done:
			return s.wrap(errClosed)
		}
	}
	select {
	case err := <-r.ended:
		r.over = true
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		select {
		case err := <-r.ended:
			r.over = true
			return err
		default:
			return s.wrap(errClosed)
		}
	}
}

func (s *sharedFile) wrap(err error) error { return wrapError(s.path, err) }

// wrapError adds the path of the file, and advice, to an error.
func wrapError(path string, err error) error {
	return fmt.Errorf("sqlite %s: %w", path, addAdvice(err))
}
