package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
)

// MaxCapacity is the most permits a semaphore can have. Whoever counts bytes,
// or dollars, counts them in larger units. What takes time is not the capacity
// but how many separate permits are out: up to some hundreds an acquire that
// has to look is over in a millisecond, with four thousand it takes 80.
const MaxCapacity = maxCapacity

// Existing in place of a capacity opens a semaphore as it is. It fails with
// [io/fs.ErrNotExist] if nobody has made it.
const Existing = -1

// What callers branch on, besides the errors of package sema.
var (
	// ErrMismatch: a semaphore is in use with another capacity.
	ErrMismatch = errors.New("capacity mismatch")
	// ErrDeleted: somebody deleted the file under a semaphore in use.
	ErrDeleted = errors.New("its file was deleted or replaced; close the semaphore and open it again")
	// ErrDamaged: the file under a semaphore in use was cut short or
	// overwritten. Permits that are held stay good and can be released.
	ErrDamaged = errors.New("its file was cut short or overwritten; close the semaphore in all processes and open it again")
)

// A Semaphore bounds what the processes of this machine do at a time. It is a
// [sema.Gate], safe for use by many goroutines.
type Semaphore struct {
	name      string
	file      *file
	observers []sema.Observer
	closed    atomic.Bool
}

// An Option configures [Open].
type Option func(*settings) error

type settings struct {
	dir       string
	access    access
	observers []sema.Observer
}

// Dir puts the semaphore into a directory of your own, which must exist: for
// containers, which meet in a mounted one.
func Dir(path string) Option {
	return func(s *settings) (err error) {
		if path == "" {
			return errors.New(`Dir(""): want a directory`)
		}
		s.dir, err = filepath.Abs(path)
		return err
	}
}

// ShareWithGroup shares the semaphore among the members of a group, given by
// name or number, instead of the processes of one user.
func ShareWithGroup(group string) Option {
	return func(s *settings) (err error) {
		s.access.gid, err = groupID(group)
		return err
	}
}

// Observe has events of this process's use of the semaphore sent to o. Given
// several times, all are told.
func Observe(o sema.Observer) Option {
	return func(s *settings) error {
		if o == nil {
			return errors.New("Observe(nil): want an observer")
		}
		s.observers = append(s.observers, o)
		return nil
	}
}

// Open opens the semaphore of that name, and makes it if need be. All who have
// it open at a time must open it with one capacity, or with [Existing]; whoever
// opens it when nobody else has sets the capacity.
func Open(name string, capacity int64, opts ...Option) (*Semaphore, error) {
	if capacity != Existing && (capacity < 0 || capacity > MaxCapacity) {
		return nil, openError(name, sema.ErrInvalid, fmt.Sprintf("capacity %d: want 0 to %d, or Existing", capacity, MaxCapacity))
	}
	s, path, err := locate(name, opts)
	if err != nil {
		return nil, err
	}
	f, err := openFile(name, path, capacity, s.access)
	if err != nil {
		return nil, err
	}
	return &Semaphore{name: name, file: f, observers: s.observers}, nil
}

// locate is where the semaphore is, by its name and the options.
func locate(name string, opts []Option) (settings, string, error) {
	base, err := fileName(name)
	if err != nil {
		return settings{}, "", err
	}
	s, err := newSettings(opts)
	if err != nil {
		return settings{}, "", openError(name, err, "")
	}
	return s, filepath.Join(s.dir, base), nil
}

func newSettings(opts []Option) (settings, error) {
	s := settings{access: access{onlyUser}}
	if err := supported(); err != nil {
		return s, err
	}
	for _, opt := range opts {
		if err := opt(&s); err != nil {
			return s, err
		}
	}
	if s.dir != "" {
		return s, s.access.checkNamed(s.dir)
	}
	var err error
	s.dir, err = directory(s.access)
	return s, err
}

// Name is the semaphore's name.
func (s *Semaphore) Name() string { return s.name }

// Scope is where [sema.AcquireAll] orders it.
func (s *Semaphore) Scope() sema.Scope { return sema.HostScope }

// Acquire waits for n permits. It fails with the context's cause when that ends
// first, and like [sema.Semaphore.Acquire] with ErrTooLarge, ErrClosed and
// ErrInvalid.
func (s *Semaphore) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	return s.acquire(ctx, "acquire", n, true)
}

// TryAcquire takes n permits if they are free and nobody waits, or else fails
// with ErrFull, or like Acquire.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	return s.acquire(ctx, "try", n, false)
}

func (s *Semaphore) acquire(ctx context.Context, op string, n int64, mayWait bool) (sema.Permit, error) {
	start := time.Now()
	runs, err := s.takeRuns(ctx, op, n, mayWait)
	if err != nil {
		s.refused(n, start, err)
		return sema.Permit{}, err
	}
	if runs == nil {
		return sema.Permit{}, nil
	}
	return s.admitted(n, start, runs), nil
}

// takeRuns leaves a reference to the file with the runs it returns.
func (s *Semaphore) takeRuns(ctx context.Context, op string, n int64, mayWait bool) (runs []run, err error) {
	f := s.file
	if !f.ref() {
		return nil, s.fault(op, n, sema.ErrClosed, "")
	}
	defer func() {
		if runs == nil {
			f.unref()
		}
	}()
	switch {
	case ctx == nil:
		return nil, s.fault(op, n, sema.ErrInvalid, "nil context")
	case n < 0:
		return nil, s.fault(op, n, sema.ErrInvalid, "want a weight of 0 or more")
	case s.closed.Load():
		return nil, s.fault(op, n, sema.ErrClosed, "")
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case n == 0:
		return nil, nil
	}
	if err := f.checkPath(time.Now()); err != nil {
		return nil, err
	}
	busy, err := f.busy()
	if err != nil {
		return nil, f.wrap(op, err)
	}
	v := short
	if !busy {
		runs, v, err = f.claim(ctx, n)
	} else if c := f.config().capacity(); n > c && c > 0 {
		v = tooLarge
	}
	switch {
	case err != nil && ctx.Err() == nil:
		return nil, f.wrap(op, err)
	case err != nil:
		return nil, err
	case v == granted:
		return runs, nil
	case v == tooLarge:
		return nil, s.fault(op, n, sema.ErrTooLarge, "")
	case !mayWait:
		return nil, s.full(ctx, n)
	}
	s.tell(sema.Event{Kind: sema.EventQueued, Weight: n})
	return f.wait(ctx, s, n)
}

// Close ends this process's use of the semaphore through s: those who wait get
// ErrClosed, permits that are out stay good until released. Other processes are
// not concerned.
func (s *Semaphore) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return s.fault("close", 0, sema.ErrClosed, "")
	}
	defer s.file.unref()
	s.file.expel(func(w *waiter) error {
		if w.sem != s {
			return nil
		}
		return s.fault("acquire", w.n, sema.ErrClosed, "")
	})
	s.tell(sema.Event{Kind: sema.EventClosed})
	return nil
}

// fault is an error with the facts that are at hand. The file may be gone only
// if the error is ErrClosed.
func (s *Semaphore) fault(op string, n int64, err error, detail string) error {
	e := &sema.Error{Op: op, Name: s.name, Weight: n, Err: err, Detail: detail}
	if !errors.Is(err, sema.ErrClosed) {
		e.Capacity = s.file.config().capacity()
	}
	return e
}

// full is the error of a try, with numbers that cost some system calls.
func (s *Semaphore) full(ctx context.Context, n int64) error {
	stats, err := s.file.stats(ctx)
	if err != nil {
		return s.file.wrap("try", err)
	}
	return &sema.Error{Op: "try", Name: s.name, Weight: n, Capacity: stats.Capacity, InUse: stats.InUse, Waiters: stats.Waiters, Err: sema.ErrFull}
}

// List is the semaphores there are, by name: those in use, and those that have
// been. Options say where, as for [Open].
func List(opts ...Option) ([]Info, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	infos := []Info{}
	for _, entry := range entries {
		name, ok := nameOf(entry.Name())
		if !ok {
			continue
		}
		f, err := openFile(name, filepath.Join(s.dir, entry.Name()), Existing, s.access)
		if err != nil {
			continue // not ours, or gone
		}
		stats, err := f.stats(context.Background())
		f.unref()
		if err == nil {
			infos = append(infos, Info{name, stats})
		}
	}
	return infos, nil
}

// An Info is a semaphore in a [List].
type Info struct {
	Name  string
	Stats sema.Stats
}

// Remove deletes a semaphore that nobody uses. There is no need to: an unused
// one takes up a few kilobytes.
func Remove(name string, opts ...Option) error {
	s, path, err := locate(name, opts)
	if err != nil {
		return err
	}
	for start := time.Now(); ; time.Sleep(openPause) {
		f, err := openFile(name, path, Existing, s.access)
		if err != nil {
			return err
		}
		err = f.remove()
		f.unref()
		if !errors.Is(err, sema.ErrInvalid) || time.Since(start) > lingering {
			return err
		}
	}
}

var _ sema.Gate = (*Semaphore)(nil)
