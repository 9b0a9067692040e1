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

// A lease is the slots of one permit, or of the parts that one was split into. Each has
// an issuer of its own, so that TakeBack identifies the slots. It holds a reference to
// the file until its last slot is released.
type lease struct {
	sem    *Semaphore
	since  time.Time
	issuer sema.Issuer

	mu        sync.Mutex // Inherit and TakeBack may run at the same time
	runs      []run      // slots that are not released
	inherited *os.File   // has the locks instead of the semaphore's file; see Inherit
}

// newLease returns the lease of slots that were claimed, and records this process as
// their holder.
func newLease(s *Semaphore, runs []run) *lease {
	l := &lease{sem: s, since: time.Now(), runs: runs}
	l.issuer.Init(l, s.monitor)
	s.file.writeRecords(runs, l.since, false)
	return l
}

var (
	_ sema.Owner   = (*lease)(nil)
	_ sema.Backing = (*lease)(nil)
)

// Name implements [sema.Owner].
func (l *lease) Name() string { return l.sem.name }

// Lost implements [sema.Backing]: nothing notifies of a deleted file.
func (l *lease) Lost() <-chan struct{} { return nil }

// Err implements [sema.Backing]: it is ErrLost if the file is deleted, since other
// processes may use another one.
func (l *lease) Err() error {
	f := l.sem.file
	if err := f.deleted(); errors.Is(err, ErrDeleted) {
		return &sema.Error{Op: "hold", Name: l.sem.name, Err: sema.ErrLost, Detail: f.path + " was deleted"}
	}
	return nil
}

// TakeBack implements [sema.Owner]: it frees n slots.
func (l *lease) TakeBack(n int64) {
	f := l.sem.file
	defer f.unref()
	l.mu.Lock()
	freed, kept := splitRuns(l.runs, n)
	l.runs = kept
	if kept != nil {
		f.refs.Add(1)                                     // the lease keeps one
		f.writeRecords(kept, l.since, l.inherited != nil) // before those of what is freed are erased
	}
	if l.inherited == nil {
		l.mu.Unlock()
		f.free(freed)
		return
	}
	f.unlockOn(int(l.inherited.Fd()), freed)
	if kept == nil {
		closeUnlocked(l.inherited)
	}
	l.mu.Unlock()
	f.wakeFirst()
}

// splitRuns splits runs after n slots.
func splitRuns(runs []run, n int64) (a, b []run) {
	if weightOf(runs) == n {
		return runs, nil
	}
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

// Inherit makes cmd, which is not started yet, hold the permit together with this
// process: if this process is killed, the permit stays held until cmd, and every
// process that cmd leaves its descriptors to, has ended as well. It is for programs
// that run a command under a permit. Releasing the permit here frees it, whichever
// process inherited it. Nothing else of this process is inherited.
//
// The parts of a permit that was split are inherited together: if this process is
// killed, they stay held until all their commands have ended.
func Inherit(p sema.Permit, cmd *exec.Cmd) error {
	const op = "inherit"
	l, ok := p.Owner().(*lease)
	if !ok {
		return &sema.Error{Op: op, Weight: p.Weight(), Err: sema.ErrInvalid, Detail: "not a held permit of a host semaphore"}
	}
	if cmd == nil || cmd.Process != nil {
		return &sema.Error{Op: op, Name: l.sem.name, Err: sema.ErrInvalid, Detail: "no command, or one that is started already"}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil || !p.Held() {
		return &sema.Error{Op: op, Name: l.sem.name, Err: sema.ErrInvalid, Detail: "the permit is not held (released or split already)"}
	}
	if l.inherited == nil {
		inherited, err := l.sem.file.duplicate(l.runs)
		if err != nil {
			return l.sem.file.wrap(op, err)
		}
		l.inherited = inherited
		l.sem.file.writeRecords(l.runs, l.since, true)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, l.inherited)
	return nil
}

// duplicate moves the locks of some slots to an open file of their own, which can be
// inherited without the rest. A lock cannot be transferred, but two files can share
// one for a moment: at no time is a slot free.
func (f *file) duplicate(runs []run) (*os.File, error) {
	if !canInherit {
		return nil, fmt.Errorf("locks of this system are not inherited: %w", errors.ErrUnsupported)
	}
	opened, err := os.OpenFile(f.path, os.O_RDWR|openFlags, 0)
	if err != nil {
		return nil, err
	}
	if err := f.moveLocks(opened, runs); err != nil {
		closeUnlocked(opened)
		return nil, err
	}
	return opened, nil
}

func (f *file) moveLocks(to *os.File, runs []run) error {
	info, err := to.Stat()
	if err != nil {
		return err
	}
	if identify(info) != f.id {
		return ErrDeleted
	}
	fd := int(to.Fd())
	if _, err := tryLock(fd, shared, presenceLock, 1); err != nil { // no process can have it exclusively: this one has it
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
			err = errors.New("another process has a lock on it")
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
