package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sema-go/sema"
)

// A file is the open file of a semaphore. A process opens it once, however many
// Semaphores use it. Locks belong to the open file, so a process has one set of
// locks.
type file struct {
	name, path string
	file       *os.File
	fd         int
	id         fileID
	memory     []byte

	head    *header
	bitmap  *[maxCapacity / wordBits]atomic.Uint64 // slots that any process holds or is claiming: a hint
	places  *[maxPlaces]place
	records *[maxCapacity]record
	owners  *[maxCapacity]atomic.Uint64 // of type owner

	mine          [maxCapacity / wordBits]atomic.Uint64 // slots that this process holds or is claiming: exact
	reservedPages [maxCapacity * recordSize / pageSize / wordBits]atomic.Uint64
	placing       sync.Mutex    // held by takePlace
	placeless     atomic.Int64  // when there was no place for this process, by clock; 0: never
	own           atomic.Int32  // this process's place, or noPlace
	identity      atomic.Uint64 // the owner that names that place; 0: it has none
	permits       atomic.Uint32
	checked       atomic.Int64 // when the path was checked, in Unix nanoseconds
	turnMissed    atomic.Int64 // when a claim last timed out waiting for its turn, by clock; 0: never
	turns         chan struct{}
	woken         chan struct{} // wakes a driver that has no place
	queue         queue
	timing        timing // changed only by tests
	onClaim       func() // set only by tests: called by a claim between locking its slots and checking the config

	damaged atomic.Bool // see touch

	refs   atomic.Int64               // Semaphores, calls, permits and the driver; the last one closes the file
	closed bool                       // closed; guarded by files.mu
	last   atomic.Pointer[sema.Stats] // the state when the file was closed
}

// files contains the open files of this process.
var files = struct {
	mu   sync.Mutex
	byID map[fileID]*file
}{byID: map[fileID]*file{}}

const (
	// openTimeout bounds how long Open waits for another process that is setting up
	// or replacing the file.
	openTimeout = 2 * time.Second
	// lingerTimeout bounds how long a process that has closed a file may still appear
	// to use it: a sleeping driver, a child between fork and exec, a process that lists
	// semaphores.
	lingerTimeout = 100 * time.Millisecond

	openPause = 5 * time.Millisecond
)

var errReplaced = errors.New("replaced while it was opened")

// openFile opens the file at path, or returns it if this process has it open already.
// A process opens a file at most once, because closing a second descriptor would drop
// POSIX locks. The stored values of an existing file apply, not those of want.
func openFile(name, path string, want stored, access access) (*file, error) {
	for start := time.Now(); time.Since(start) < openTimeout; time.Sleep(openPause) {
		f, err := openOnce(name, path, want, access)
		if errors.Is(err, errReplaced) || errors.Is(err, ErrDamaged) && time.Since(start) < lingerTimeout {
			continue
		}
		return f, err
	}
	return nil, openError(name, sema.ErrUnavailable, fmt.Sprintf("another process has been setting up %s for %v", path, openTimeout), "check whether it is stopped")
}

func openOnce(name, path string, want stored, access access) (*file, error) {
	files.mu.Lock()
	defer files.mu.Unlock()
	found, err := os.Lstat(path)
	switch {
	case err == nil && !found.Mode().IsRegular():
		return nil, openError(name, sema.ErrInvalid, path+" is not a regular file", "remove it")
	case err == nil:
		if f := files.byID[identify(found)]; f != nil {
			if err := access.check(path, found); err != nil {
				return nil, named("open", name, err)
			}
			if !f.intact() {
				return nil, openError(name, ErrDamaged, path, "")
			}
			f.refs.Add(1)
			return f, nil
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, openError(name, err, "", "")
	case want.capacity == Existing:
		return nil, notCreated(name)
	}
	opened, err := openPath(path, found == nil, access)
	if errors.Is(err, fs.ErrExist) || found != nil && errors.Is(err, fs.ErrNotExist) {
		return nil, errReplaced
	}
	if err != nil {
		return nil, openError(name, err, "", "")
	}
	f := &file{
		name: name, path: path, file: opened, fd: int(opened.Fd()),
		turns: make(chan struct{}, 1), woken: make(chan struct{}, 1),
		timing: defaultTiming,
	}
	f.own.Store(noPlace)
	f.queue.watch.f = f
	if err := f.setUp(want, access); err != nil {
		f.close()
		return nil, err
	}
	f.refs.Store(1)
	files.byID[f.id] = f
	return f, nil
}

func notCreated(name string) error {
	return openError(name, fs.ErrNotExist, "", "open it with a capacity to create it")
}

// openPath opens the file, or creates it. A new file is linked to its path only after
// its mode and group are set, so that no process finds it incomplete.
func openPath(path string, create bool, access access) (*os.File, error) {
	if !create {
		return os.OpenFile(path, os.O_RDWR|openFlags, 0)
	}
	created, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(created.Name())
	err = access.grant(created)
	if err == nil {
		err = os.Link(created.Name(), path)
	}
	if err != nil {
		created.Close()
		return nil, err
	}
	return created, nil
}

// setUp checks the opened file, takes the presence lock and maps the file. A process
// that is the only opener resets the file: no permit is held, so only the stored
// values matter. A file that this package did not create is not changed.
func (f *file) setUp(want stored, access access) error {
	info, err := f.file.Stat()
	if err != nil {
		return openError(f.name, err, "", "")
	}
	if err := access.check(f.path, info); err != nil {
		return named("open", f.name, err)
	}
	if err := rejectNetwork(f.fd); err != nil {
		return openError(f.name, err, f.path+" cannot be shared safely", "use Dir with a local directory")
	}
	alone, err := f.lockPresence()
	if err != nil {
		return err
	}
	f.id = identify(info)
	if now, err := os.Lstat(f.path); err != nil || identify(now) != f.id {
		return errReplaced
	}
	is, err := f.admissible(alone, want)
	if err != nil {
		return err
	}
	if err := reserve(f.fd, 0, placesAt); err != nil {
		return openError(f.name, err, "no room for "+f.path, "free space on that filesystem")
	}
	if f.memory, err = mapShared(f.fd, mapSize); err != nil {
		return openError(f.name, err, "", "")
	}
	f.head = (*header)(unsafe.Pointer(&f.memory[0]))
	f.bitmap = (*[maxCapacity / wordBits]atomic.Uint64)(unsafe.Pointer(&f.memory[bitmapAt]))
	f.places = (*[maxPlaces]place)(unsafe.Pointer(&f.memory[placesAt]))
	f.records = (*[maxCapacity]record)(unsafe.Pointer(&f.memory[recordsAt]))
	f.owners = (*[maxCapacity]atomic.Uint64)(unsafe.Pointer(&f.memory[ownersAt]))
	if alone {
		reset := ErrDamaged
		f.touch(func() { reset = f.reset(is == complete, want) })
		return f.wrap("open", reset)
	}
	if !f.intact() {
		return openError(f.name, ErrDamaged, f.path, "")
	}
	return nil
}

// admissible returns the kind of the file, or an error if the file must be neither
// used nor reset.
func (f *file) admissible(alone bool, want stored) (content, error) {
	is, found, err := f.examine()
	if err != nil {
		return is, f.wrap("open", err)
	}
	if is == complete || alone && is != foreign && want.capacity != Existing {
		return is, nil
	}
	if alone && is != foreign {
		return is, notCreated(f.name)
	}
	return is, named("open", f.name, unusable(f.path, is, found, alone))
}

// lockPresence takes the presence lock and reports whether no other process has it. If
// so, the lock is exclusive until reset makes it shared. Otherwise it is shared at once.
func (f *file) lockPresence() (alone bool, err error) {
	alone, err = tryLock(f.fd, exclusive, presenceLock, 1)
	if alone || err != nil {
		return alone, f.wrap("open", err)
	}
	present, err := tryLock(f.fd, shared, presenceLock, 1)
	if err != nil {
		return false, f.wrap("open", err)
	}
	if !present {
		return false, errReplaced // another process is setting it up or removing it
	}
	lockAgainstCleaners(f.fd)
	return false, nil
}

// reset discards the content, except the stored values if keep is true. It then makes
// the presence lock shared, so that other processes can open the file.
func (f *file) reset(keep bool, want stored) error {
	before := config(f.head.config.Load())
	flags := before & drainingFlag
	if keep {
		want = stored{before.capacity(), storedWaiters(f.head.maxWaiters.Load())}
	} else {
		flags = 0
	}
	if !keep { // with keep, the stored values would be lost if the process is killed here
		f.head.magic.Store(beginning)
	}
	if err := f.discard(); err != nil {
		return f.wrap("open", err)
	}
	if err := f.addSlots(0, want.capacity); err != nil {
		return err
	}
	for i := range f.bitmap {
		f.bitmap[i].Store(0)
	}
	f.head.high.Store(0)
	f.head.tickets.Store(0)
	f.head.incarnations.Store(0)
	f.head.reach.Store(uint32(want.capacity))
	f.head.maxWaiters.Store(int64(want.maxWaiters))
	f.head.config.Store(uint64(before.changed(want.capacity, flags)))
	f.head.magic.Store(magic)
	if _, err := tryLock(f.fd, shared, presenceLock, 1); err != nil {
		return f.wrap("open", err)
	}
	lockAgainstCleaners(f.fd)
	return nil
}

// discard replaces old places, records and owners by zeros. It clears the pages that were
// written if they are few: to truncate a file on a disk takes a millisecond, as long as a short
// command.
func (f *file) discard() error {
	if info, err := f.file.Stat(); err == nil && info.Size() == mapSize {
		if written, ok := writtenParts(f.fd, placesAt, mapSize); ok {
			for _, part := range written {
				clear(f.memory[part.from:part.to])
			}
			return nil
		}
	}
	for _, size := range []int64{placesAt, mapSize} {
		if err := f.file.Truncate(size); err != nil {
			return err
		}
	}
	return nil
}

// A part is a part of a file.
type part struct{ from, to int64 }

// config returns the config, or 0 if the file is damaged. A file without its magic is
// damaged: the magic is written before any other process can open the file.
func (f *file) config() (c config) {
	f.touch(func() {
		c = config(f.head.config.Load())
		if f.head.magic.Load() != magic {
			f.damaged.Store(true)
		}
	})
	if f.damaged.Load() {
		return 0
	}
	return c
}

// stored returns the stored values.
func (f *file) stored() (s stored) {
	s.capacity = f.config().capacity()
	f.touch(func() { s.maxWaiters = storedWaiters(f.head.maxWaiters.Load()) })
	return s
}

// pathCheck is the minimum interval, in nanoseconds, between path checks of acquires.
const pathCheck = int64(time.Second)

// checkPath fails if the file is no longer the one at its path. A process that opens
// the path now gets another file, and both files together would grant twice the
// capacity.
func (f *file) checkPath(now time.Time) error {
	if f.pathIsChecked(now) {
		return nil
	}
	err := f.deleted()
	if err == nil {
		f.checked.Store(now.UnixNano())
	}
	return err
}

// pathIsChecked reports whether the path was checked less than pathCheck ago.
func (f *file) pathIsChecked(now time.Time) bool {
	last := f.checked.Load()
	return now.UnixNano()-last < pathCheck && now.UnixNano() >= last
}

// deleted returns ErrDeleted if the file is no longer the one at its path.
func (f *file) deleted() error {
	found, err := os.Lstat(f.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && identify(found) != f.id {
		return ErrDeleted
	}
	return err
}

// ref adds a reference, which keeps the file mapped. It reports false if the file is
// closed.
func (f *file) ref() bool {
	for {
		n := f.refs.Load()
		if n == 0 {
			return false
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (f *file) unref() {
	if f.refs.Add(-1) > 0 {
		return
	}
	files.mu.Lock()
	defer files.mu.Unlock()
	if f.closed || f.refs.Load() > 0 { // opened again, and maybe closed again, meanwhile
		return
	}
	last := f.snapshot()
	f.last.Store(&last)
	f.closed = true
	delete(files.byID, f.id)
	f.close()
}

// close unmaps and closes the file.
func (f *file) close() {
	if f.memory != nil {
		unmap(f.memory)
	}
	closeUnlocked(f.file)
}

// closeUnlocked drops all locks and closes the file. Closing alone would leave the
// locks to a child that has a copy of the descriptor.
func closeUnlocked(file *os.File) {
	unlock(int(file.Fd()), 0, 0)
	unlockAgainstCleaners(int(file.Fd()))
	file.Close()
}
