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

// A file is a semaphore's file. This process has it open once, however often the
// semaphore is open. Locks belong to the open file, so this process has one set of
// them.
type file struct {
	name, path string
	file       *os.File
	fd         int
	id         fileID
	memory     []byte

	head    *header
	bitmap  *[maxCapacity / wordBits]atomic.Uint64 // slots that a process has or is claiming: a hint
	places  *[maxPlaces]place
	records *[maxCapacity]record

	mine    [maxCapacity / wordBits]atomic.Uint64 // slots that this process has or is claiming: exact
	roomFor [maxCapacity * recordSize / pageSize / wordBits]atomic.Uint64
	own     atomic.Int32 // this process's place, or noPlace
	permits atomic.Uint32
	checked atomic.Int64 // when the path was checked, in Unix nanoseconds
	// When a claim last waited for the turn in vain, likewise.
	turnMissed atomic.Int64
	turns      chan struct{}
	woken      chan struct{} // wakes a driver that has no place
	queue      queue
	pace       pace // constant but for tests

	damaged atomic.Bool // see touch

	refs atomic.Int64               // Semaphores, calls, permits and the driver; the last one closes the file
	gone bool                       // closed; guarded by files.mu
	last atomic.Pointer[sema.Stats] // the state when the file was closed
}

// files are the open files of this process.
var files = struct {
	mu   sync.Mutex
	byID map[fileID]*file
}{byID: map[fileID]*file{}}

const (
	// openTimeout is how long opening waits for another process that is setting
	// the file up, or replaces it.
	openTimeout = 2 * time.Second
	// lingering is how long a process that has closed a file may still seem to
	// use it: a driver that sleeps, a child between fork and exec, a process that
	// lists semaphores.
	lingering = 100 * time.Millisecond

	openPause = 5 * time.Millisecond
)

var errReplaced = errors.New("replaced while it was opened")

// openFile opens the file at a path, or returns it if this process has it open
// already: it is opened at most once, because closing a second descriptor would drop
// POSIX locks. What is stored in an existing file applies, whatever want says.
func openFile(name, path string, want stored, access access) (*file, error) {
	for start := time.Now(); time.Since(start) < openTimeout; time.Sleep(openPause) {
		f, err := openOnce(name, path, want, access)
		if errors.Is(err, errReplaced) || errors.Is(err, ErrDamaged) && time.Since(start) < lingering {
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
			if !f.whole() {
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
		pace: usualPace,
	}
	f.own.Store(noPlace)
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

// openPath opens the file, or creates it. A new file gets its name only after its mode
// and group, so that no process finds it incomplete.
func openPath(path string, create bool, access access) (*os.File, error) {
	if !create {
		return os.OpenFile(path, os.O_RDWR|openFlags, 0)
	}
	made, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(made.Name())
	err = access.grant(made)
	if err == nil {
		err = os.Link(made.Name(), path)
	}
	if err != nil {
		made.Close()
		return nil, err
	}
	return made, nil
}

// setUp checks the opened file, takes the presence lock and maps it. A process that
// is alone with the file resets it: no permit is held, so nothing in it counts but
// what is stored. A file that is not of this package is not changed.
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
	alone, err := f.enter()
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
	if alone {
		reset := ErrDamaged
		f.touch(func() { reset = f.reset(is == complete, want) })
		return f.wrap("open", reset)
	}
	if !f.whole() {
		return openError(f.name, ErrDamaged, f.path, "")
	}
	return nil
}

// admissible returns what the file is, or an error if it must not be used, or reset.
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

// enter takes the presence lock, shared, and reports whether no other process has it:
// then it is exclusive until reset.
func (f *file) enter() (alone bool, err error) {
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
	keepFromCleaners(f.fd)
	return false, nil
}

// reset discards the content, except what is stored if the file is complete, and
// lets other processes in.
func (f *file) reset(keep bool, want stored) error {
	before := config(f.head.config.Load())
	flags := before & drainingFlag
	if keep {
		want = stored{before.capacity(), storedWaiters(f.head.maxWaiters.Load())}
	} else {
		flags = 0
	}
	if !keep { // or what is stored would be lost with a process that is killed here
		f.head.magic.Store(beginning)
	}
	if err := f.file.Truncate(placesAt); err != nil { // places and records of the past
		return f.wrap("open", err)
	}
	for i := range f.bitmap {
		f.bitmap[i].Store(0)
	}
	f.head.high.Store(0)
	f.head.tickets.Store(0)
	f.head.reach.Store(uint32(want.capacity))
	f.head.maxWaiters.Store(int64(want.maxWaiters))
	f.head.config.Store(uint64(before.changed(want.capacity, flags)))
	f.head.magic.Store(magic)
	if _, err := tryLock(f.fd, shared, presenceLock, 1); err != nil {
		return f.wrap("open", err)
	}
	keepFromCleaners(f.fd)
	return nil
}

// config reads the config. A file without its magic is damaged: that was written
// before any other process could open it.
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

// stored reads what is stored.
func (f *file) stored() (s stored) {
	s.capacity = f.config().capacity()
	f.touch(func() { s.maxWaiters = storedWaiters(f.head.maxWaiters.Load()) })
	return s
}

// pathCheck is how often acquires that need not wait check the path.
const pathCheck = int64(time.Second)

// checkPath fails if the file is no longer the one at its path: a process that opens
// the path now gets another one, and the two together admit twice the capacity.
func (f *file) checkPath(now time.Time) error {
	last := f.checked.Load()
	if now.UnixNano()-last < pathCheck && now.UnixNano() >= last {
		return nil
	}
	err := f.deleted()
	if err == nil {
		f.checked.Store(now.UnixNano())
	}
	return err
}

// deleted returns nil if the file is the one at its path.
func (f *file) deleted() error {
	found, err := os.Lstat(f.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && identify(found) != f.id {
		return ErrDeleted
	}
	return err
}

// ref keeps the file mapped for a call. It fails if the file is closed.
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
	if f.gone || f.refs.Load() > 0 { // opened again, and maybe closed again, meanwhile
		return
	}
	last := f.snapshot()
	f.last.Store(&last)
	f.gone = true
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

// closeUnlocked drops all locks and closes. Closing alone would leave the locks to a
// child that has a copy of the descriptor.
func closeUnlocked(file *os.File) {
	unlock(int(file.Fd()), 0, 0)
	dropKeep(int(file.Fd()))
	file.Close()
}
