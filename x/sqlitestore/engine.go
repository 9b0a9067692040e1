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

// An engine has one file. One goroutine, the writer, has all that is in it: the
// semaphores in memory and the connection.
type engine struct {
	path   string
	normal bool
	stores int // which use it; guarded by engines.mu

	inbox chan *request
	quit  chan struct{}
	done  chan struct{} // closed when the writer is gone

	owner     *owner
	listeners listeners
	writer    writer
}

// engines are those of this process, by path.
var engines = struct {
	mu     sync.Mutex
	byPath map[string]*engine
}{byPath: map[string]*engine{}}

// share is the engine of a file: the one there is, or a new one.
func share(path string, normal bool) (*engine, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	engines.mu.Lock()
	defer engines.mu.Unlock()
	e := engines.byPath[path]
	switch {
	case e == nil:
		if err := ownAlready(path); err != nil {
			return nil, err
		}
		if e, err = start(path, normal); err != nil {
			return nil, err
		}
		engines.byPath[path] = e
	case e.normal != normal:
		return nil, invalid("%s is open in this process with synchronous=%s; open it everywhere with the same", path, synchronous(e.normal))
	}
	e.stores++
	return e, nil
}

// ownAlready rejects a file that this process has open under another path. It must
// not even be opened: to close it again would drop SQLite's locks. engines.mu is
// held.
func ownAlready(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil // whatever it is, start meets it
	}
	for other, e := range engines.byPath {
		if there, err := e.owner.database.Stat(); err == nil && os.SameFile(info, there) {
			return faultOf(path, fmt.Errorf("this process has it open as %s, and %w; open it under that path", other, ErrOwned))
		}
	}
	return nil
}

// resolve finds one name for a file, whichever way it is reached.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", invalid("path %q: %v", path, err)
	}
	whole, err := filepath.EvalSymlinks(path)
	if err == nil {
		return whole, nil
	}
	if _, there := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) || there == nil {
		return "", invalid("path %q cannot be followed: %v", path, err)
	}
	directory, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", invalid("the directory of %q is not there; make it first: %v", path, err)
	}
	return filepath.Join(directory, filepath.Base(path)), nil
}

func start(path string, normal bool) (*engine, error) {
	o, err := own(path)
	if err != nil {
		return nil, err
	}
	f, err := openFile(path, normal, o.database)
	if isFull(err) { // even the index of the log, of 32 KB, needs room
		(&reserve{database: o.database}).release()
		f, err = openFile(path, normal, o.database)
	}
	if err != nil {
		o.release()
		return nil, faultOf(path, err)
	}
	e := &engine{
		path: path, normal: normal, owner: o,
		inbox: make(chan *request, maxGroup), quit: make(chan struct{}), done: make(chan struct{}),
	}
	e.writer = writer{
		file: f, open: func() (*file, error) { return openFile(path, normal, o.database) },
		fault: e.fault, hint: e.listeners.hint,
		now:  func() protocol.Micros { return protocol.Micros(time.Now().UnixMicro()) },
		kept: map[string]*kept{}, live: map[string]*kept{},
	}
	if e.writer.unread, err = f.inUse(); err != nil {
		f.close()
		o.release()
		return nil, faultOf(path, err)
	}
	go e.run()
	return e, nil
}

// unshare is the end of one store's use. With the last one, the file is closed.
func (e *engine) unshare() error {
	engines.mu.Lock()
	defer engines.mu.Unlock()
	if e.stores--; e.stores > 0 {
		return nil
	}
	close(e.quit)
	<-e.done
	delete(engines.byPath, e.path)
	err := e.writer.close()
	e.owner.release()
	if err != nil {
		return e.fault(err)
	}
	return nil
}

// run is the writer's goroutine. What arrives while a group is being written
// down is the next group: nobody waits for company that is not on its way, and
// under load each commit is shared.
func (e *engine) run() {
	defer close(e.done)
	ticks := time.NewTimer(longestTick)
	defer ticks.Stop()
	for {
		select {
		case r := <-e.inbox:
			e.writer.serve(e.gather(r))
		case <-ticks.C:
			e.writer.tick()
			ticks.Reset(e.writer.untilTick())
		case <-e.quit:
			for len(e.inbox) > 0 {
				e.writer.serve(e.gather(<-e.inbox))
			}
			return
		}
	}
}

// A group is bounded, so that those in it do not wait for ever more of those
// who came after them.
const (
	maxGroup = 512   // requests
	maxSize  = 8_192 // ops in them, or thereabouts
)

// yields is how often others who are ready to run are let run before a group is
// closed: they may be about to join it. A commit costs as much for one as for
// twenty. Where nobody is, it takes less than a microsecond; where so many are that
// it takes longer than brief, they have other things to do.
const (
	yields = 3
	brief  = 100 * time.Microsecond
)

// gather is a request and those that are there already, or about to be.
func (e *engine) gather(first *request) []*request {
	group, size := []*request{first}, first.size
	for yielded := 0; len(group) < maxGroup && size < maxSize; {
		select {
		case r := <-e.inbox:
			group = append(group, r)
			size += r.size
		default:
			if yielded == yields {
				return group
			}
			start := time.Now()
			runtime.Gosched()
			if yielded++; time.Since(start) > brief {
				yielded = yields
			}
		}
	}
	return group
}

// await hands a request to the writer and waits for its end.
func (e *engine) await(ctx context.Context, r *request) error {
	r.ended = make(chan error, 1)
	select {
	case e.inbox <- r:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.done:
		return e.fault(errClosed)
	}
	select {
	case err := <-r.ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.done:
		select {
		case err := <-r.ended:
			return err
		default:
			return e.fault(errClosed)
		}
	}
}

func (e *engine) fault(err error) error { return faultOf(e.path, err) }

// faultOf says which file an error is about, and what to do about it.
func faultOf(path string, err error) error { return fmt.Errorf("sqlite %s: %w", path, explain(err)) }
