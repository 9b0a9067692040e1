package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/sema-go/sema"
)

// A lease is the slots of one permit. It holds a reference to the file.
type lease struct {
	sem   *Semaphore
	since time.Time

	mu      sync.Mutex // Inherit and Release may meet
	runs    []run      // nil once released or split
	bequest *os.File   // holds the locks instead of the semaphore's file; see Inherit
}

func (l *lease) Name() string { return l.sem.name }

// Err is ErrLost if the file is gone, and others may share another.
func (l *lease) Err() error {
	f := l.sem.file
	if err := f.deleted(); errors.Is(err, ErrDeleted) {
		return &sema.Error{Op: "hold", Name: l.sem.name, Err: sema.ErrLost, Detail: f.path + " was deleted"}
	}
	return nil
}

// Release gives the slots to whoever is next.
func (l *lease) Release() {
	l.mu.Lock()
	runs, bequest := l.runs, l.bequest
	l.runs = nil
	l.mu.Unlock()
	f := l.sem.file
	defer f.unref()
	if bequest != nil {
		f.unlockOn(int(bequest.Fd()), runs)
		letGo(bequest)
		f.wakeFirst()
	} else {
		f.free(runs)
	}
	l.sem.tell(sema.Event{Kind: sema.EventReleased, Weight: weightOf(runs), Hold: time.Since(l.since)})
}

// Split parts the slots.
func (l *lease) Split(n int64) (first, rest sema.Lease, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bequest != nil {
		return nil, nil, &sema.Error{Op: "split", Name: l.sem.name, Err: sema.ErrInvalid, Detail: "a process has inherited the permit as it is"}
	}
	f := l.sem.file
	a, b := splitRuns(l.runs, n)
	l.runs = nil
	f.refs.Add(1) // one more lease
	f.writeRecords(a, l.since, false)
	f.writeRecords(b, l.since, false)
	return &lease{sem: l.sem, since: l.since, runs: a}, &lease{sem: l.sem, since: l.since, runs: b}, nil
}

// splitRuns parts runs after n slots.
func splitRuns(runs []run, n int64) (a, b []run) {
	for _, r := range runs {
		switch have := weightOf(a); {
		case have == n:
			b = append(b, r)
		case have+int64(r.n) <= n:
			a = append(a, r)
		default:
			cut := uint32(n - have)
			a = append(a, run{r.at, cut})
			b = append(b, run{r.at + cut, r.n - cut})
		}
	}
	return a, b
}

// Inherit has cmd, which is not started yet, hold the permit together with this
// process: should this process be killed, the permit stays taken until cmd, and
// every process that cmd leaves its descriptors to, is gone as well. For
// programs that run a command under a permit. Releasing the permit here frees
// it, whoever inherited it; nothing else of this process's is passed on.
func Inherit(p sema.Permit, cmd *exec.Cmd) error {
	l, ok := p.Lease().(*lease)
	if !ok {
		return &sema.Error{Op: "inherit", Weight: p.Weight(), Err: sema.ErrInvalid, Detail: "want a permit of a host semaphore"}
	}
	if cmd == nil || cmd.Process != nil {
		return &sema.Error{Op: "inherit", Name: l.sem.name, Err: sema.ErrInvalid, Detail: "want a command that is not started yet"}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil || !p.Held() {
		return &sema.Error{Op: "inherit", Name: l.sem.name, Err: sema.ErrInvalid, Detail: "the permit is not held (released or split already)"}
	}
	if l.bequest == nil {
		bequest, err := l.sem.file.bequeath(l.runs)
		if err != nil {
			return l.sem.file.wrap("inherit", err)
		}
		l.bequest = bequest
		l.sem.file.writeRecords(l.runs, l.since, true)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, l.bequest)
	return nil
}

// bequeath moves the locks of some slots to an open file of their own, which
// can be passed to a process without the rest. A lock cannot be passed on, but
// two files can share one for a moment: at no time is a slot free.
func (f *file) bequeath(runs []run) (*os.File, error) {
	if !canInherit {
		return nil, fmt.Errorf("locks of this system are not inherited: %w", errors.ErrUnsupported)
	}
	heir, err := os.OpenFile(f.path, os.O_RDWR|openFlags, 0)
	if err != nil {
		return nil, err
	}
	if err := f.moveLocks(heir, runs); err != nil {
		letGo(heir)
		return nil, err
	}
	return heir, nil
}

func (f *file) moveLocks(heir *os.File, runs []run) error {
	info, err := heir.Stat()
	if err != nil {
		return err
	}
	if identify(info) != f.id {
		return ErrDeleted
	}
	fd := int(heir.Fd())
	if _, err := tryLock(fd, shared, presenceLock, 1); err != nil { // nobody can have it exclusively: we have it
		return err
	}
	keepFromCleaners(fd)
	for i, r := range runs {
		if err := moveLock(f.fd, fd, r); err != nil {
			for _, moved := range runs[:i] {
				moveLock(fd, f.fd, moved)
			}
			return err
		}
	}
	return nil
}

// moveLock moves one run, or leaves it where it was.
func moveLock(from, to int, r run) error {
	at, n := r.offset(), int64(r.n)
	move := func(fd int, kind lockKind) error {
		ok, err := tryLock(fd, kind, at, n)
		if err == nil && !ok {
			err = errors.New("somebody else has a lock on it")
		}
		return err
	}
	for _, step := range []func() error{
		func() error { return move(from, shared) },
		func() error { return move(to, shared) },
		func() error { return move(from, none) },
		func() error { return move(to, exclusive) },
	} {
		if err := step(); err != nil {
			return errors.Join(fmt.Errorf("cannot move a lock: %w", err), move(from, shared), move(to, none), move(from, exclusive))
		}
	}
	return nil
}
