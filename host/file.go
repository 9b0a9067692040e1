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

// A file is a semaphore's file, open once in this process however often the
// semaphore is. Locks belong to the open file, so this process has one set of
// them.
type file struct {
	name, path string
	file       *os.File
	fd         int
	id         fileID
	memory     []byte

	head    *header
	bitmap  *[maxCapacity / wordBits]atomic.Uint64 // slots somebody has or is taking: a hint
	places  *[maxPlaces]place
	records *[maxCapacity]record

	mine    [maxCapacity / wordBits]atomic.Uint64 // slots this process has or is taking: the truth
	roomFor [maxCapacity * recordSize / pageSize / wordBits]atomic.Uint64
	own     atomic.Int32 // this process's place, or noPlace
	permits atomic.Uint32
	checked atomic.Int64 // when the path was, in Unix nanoseconds
	// When a claim lost its patience with whoever has the turn, likewise.
	distrusted atomic.Int64
	turns      chan struct{}
	roused     chan struct{}
	line       line
	pace       pace // constant but for tests

	damaged atomic.Bool // see touch

	refs atomic.Int64 // handles, calls, permits and the driver; the last one out closes
	gone bool         // closed; guarded by files.mu
}

// files are the open files of this process.
var files = struct {
	mu   sync.Mutex
	byID map[fileID]*file
}{byID: map[fileID]*file{}}

const (
	// patience is how long opening waits for another process that is setting
	// the file up, or replaces it.
	patience = 2 * time.Second
	// lingering is how long somebody who has let go of a file may still seem to
	// use it: a driver that sleeps, a child between fork and exec, who lists what
	// there is.
	lingering = 100 * time.Millisecond

	openPause = 5 * time.Millisecond
)

var errReplaced = errors.New("replaced while it was opened")

// openFile opens the file at a path in this process, or says it is open already.
// The file is opened at most once, because closing a second descriptor would
// drop POSIX locks.
func openFile(name, path string, capacity int64, access access) (*file, error) {
	for start := time.Now(); time.Since(start) < patience; time.Sleep(openPause) {
		f, err := openOnce(name, path, capacity, access)
		inUse := errors.Is(err, ErrMismatch) || errors.Is(err, ErrDamaged)
		if errors.Is(err, errReplaced) || inUse && time.Since(start) < lingering {
			continue
		}
		return f, err
	}
	return nil, openError(name, sema.ErrUnavailable, "another process has been setting up "+path+" for seconds; is it stopped?")
}

func openOnce(name, path string, capacity int64, access access) (*file, error) {
	files.mu.Lock()
	defer files.mu.Unlock()
	found, err := os.Lstat(path)
	switch {
	case err == nil && !found.Mode().IsRegular():
		return nil, openError(name, sema.ErrInvalid, path+" is not a regular file; remove it")
	case err == nil:
		if f := files.byID[identify(found)]; f != nil {
			if err := access.check(found); err != nil {
				return nil, openError(name, sema.ErrInvalid, path+" "+err.Error())
			}
			if err := f.agree(capacity); err != nil {
				return nil, err
			}
			f.refs.Add(1)
			return f, nil
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, openError(name, err, "")
	case capacity == Existing:
		return nil, openError(name, fs.ErrNotExist, "nobody has opened it with a capacity")
	}
	opened, err := openPath(path, found == nil, access)
	if errors.Is(err, fs.ErrExist) || found != nil && errors.Is(err, fs.ErrNotExist) {
		return nil, errReplaced
	}
	if err != nil {
		return nil, openError(name, err, "")
	}
	f := &file{
		name: name, path: path, file: opened, fd: int(opened.Fd()),
		turns: make(chan struct{}, 1), roused: make(chan struct{}, 1),
		pace: usualPace,
	}
	f.own.Store(noPlace)
	if err := f.setUp(capacity, access); err != nil {
		f.close()
		return nil, err
	}
	f.refs.Store(1)
	files.byID[f.id] = f
	return f, nil
}

// openPath opens, or creates. A new file is in place only once it has its mode
// and group, so that nobody finds it half made.
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

// setUp checks the opened file, takes the presence lock and maps it. Whoever is
// alone with the file makes it anew: nobody holds anything, so nothing in it
// counts but the capacity, and that only for those who do not bring one. A file
// that is not of this package is left as it is.
func (f *file) setUp(capacity int64, access access) error {
	info, err := f.file.Stat()
	if err != nil {
		return openError(f.name, err, "")
	}
	if err := access.check(info); err != nil {
		return openError(f.name, sema.ErrInvalid, f.path+" "+err.Error())
	}
	if err := refuseNetwork(f.fd); err != nil {
		return openError(f.name, err, f.path+" cannot be shared safely; use Dir with a local directory")
	}
	alone, err := f.enter()
	if err != nil {
		return err
	}
	f.id = identify(info)
	if now, err := os.Lstat(f.path); err != nil || identify(now) != f.id {
		return errReplaced
	}
	if err := f.admissible(alone, capacity); err != nil {
		return err
	}
	if err := reserve(f.fd, 0, placesAt); err != nil {
		return openError(f.name, err, "no room for "+f.path)
	}
	if f.memory, err = mapShared(f.fd, mapSize); err != nil {
		return openError(f.name, err, "")
	}
	f.head = (*header)(unsafe.Pointer(&f.memory[0]))
	f.bitmap = (*[maxCapacity / wordBits]atomic.Uint64)(unsafe.Pointer(&f.memory[bitmapAt]))
	f.places = (*[maxPlaces]place)(unsafe.Pointer(&f.memory[placesAt]))
	f.records = (*[maxCapacity]record)(unsafe.Pointer(&f.memory[recordsAt]))
	if !alone {
		return f.agree(capacity)
	}
	begun := ErrDamaged
	f.touch(func() { begun = f.begin(capacity) })
	return f.wrap("open", begun)
}

// admissible fails if the file must not be used, or made anew, as it is.
func (f *file) admissible(alone bool, capacity int64) error {
	is, found, err := f.examine()
	switch {
	case err != nil:
		return f.wrap("open", err)
	case is == foreign && alone:
		return openError(f.name, sema.ErrInvalid, f.path+" is not a file of Sema and was left as it is; remove it, or use another name or directory")
	case is == otherKind && !alone:
		return openError(f.name, sema.ErrInvalid, fmt.Sprintf("%s is in use by a version of Sema with another layout (%#x, this one has %#x)", f.path, found, uint64(magic)))
	case is != complete && !alone:
		return openError(f.name, ErrDamaged, f.path)
	case is != complete && capacity == Existing:
		return openError(f.name, fs.ErrNotExist, "nobody has opened it with a capacity")
	}
	return nil
}

// enter takes the presence lock, shared, and says whether nobody else has it:
// it is still exclusive then, until begin.
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
		return false, errReplaced // somebody is setting it up or removing it
	}
	keepFromCleaners(f.fd)
	return false, nil
}

// begin makes the content anew and lets others in.
func (f *file) begin(capacity int64) error {
	before := config(f.head.config.Load())
	if capacity == Existing {
		capacity = before.capacity()
	}
	f.head.magic.Store(beginning)
	if err := f.file.Truncate(placesAt); err != nil { // places and records of the past
		return f.wrap("open", err)
	}
	for i := range f.bitmap {
		f.bitmap[i].Store(0)
	}
	f.head.high.Store(0)
	f.head.tickets.Store(0)
	f.head.reach.Store(uint32(capacity))
	f.head.config.Store(uint64(before.changed(capacity, 0)))
	f.head.magic.Store(magic)
	if _, err := tryLock(f.fd, shared, presenceLock, 1); err != nil {
		return f.wrap("open", err)
	}
	keepFromCleaners(f.fd)
	return nil
}

// agree checks that an opener means the capacity there is.
func (f *file) agree(capacity int64) error {
	there := f.config().capacity()
	if f.damaged.Load() {
		return openError(f.name, ErrDamaged, f.path)
	}
	if capacity != Existing && capacity != there {
		return openError(f.name, ErrMismatch, fmt.Sprintf("it is in use with capacity %d, not %d; open it with %d or Existing, or Resize it for all", there, capacity, there))
	}
	return nil
}

// config is what the file says. A file without its magic is damaged: that was
// there before anybody else could open it.
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

// pathCheck is how often the path is checked by those who need not wait.
const pathCheck = int64(time.Second)

// checkPath fails if the file is not the one at its path any more: those who
// open it now get another one, and the two together admit twice the capacity.
func (f *file) checkPath(now time.Time) error {
	last := f.checked.Load()
	if now.UnixNano()-last < pathCheck && now.UnixNano() >= last {
		return nil
	}
	err := f.deleted()
	if err == nil {
		f.checked.Store(now.UnixNano())
	}
	return f.wrap("acquire", err)
}

// deleted is nil if the file is the one at its path.
func (f *file) deleted() error {
	found, err := os.Lstat(f.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && identify(found) != f.id {
		return ErrDeleted
	}
	return err
}

// ref keeps the file mapped for a call; it fails on one that is gone.
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
	if f.gone || f.refs.Load() > 0 { // opened again, and maybe closed again, before we got here
		return
	}
	f.gone = true
	delete(files.byID, f.id)
	f.close()
}

// close lets go of everything.
func (f *file) close() {
	if f.memory != nil {
		unmap(f.memory)
	}
	letGo(f.file)
}

// letGo drops all locks and closes. Closing alone would leave the locks to a
// child that has a copy of the descriptor.
func letGo(file *os.File) {
	unlock(int(file.Fd()), 0, 0)
	dropKeep(int(file.Fd()))
	file.Close()
}

func (f *file) wrap(op string, err error) error {
	if semaErr := (*sema.Error)(nil); err == nil || errors.As(err, &semaErr) {
		return err
	}
	return &sema.Error{Op: op, Name: f.name, Err: err, Detail: f.path}
}

func openError(name string, err error, detail string) error {
	return &sema.Error{Op: "open", Name: name, Err: err, Detail: detail}
}
