package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"

	"github.com/sema-go/sema"
)

// Inherit makes cmd, which must not be started yet, hold the permit together with this
// process. If this process is killed, the permit stays held until cmd, and every
// process that inherits the descriptors of cmd, has ended as well. Use it in programs
// that run a command under a permit. Releasing the permit in this process frees it,
// whichever process inherited it. Nothing else of this process is inherited.
//
// The parts of a permit that is split after Inherit are inherited together: if this
// process is killed, they stay held until all their commands have ended. Split first to
// have each part inherited by its own command.
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
		opened, err := l.sem.file.duplicate(l.runs)
		if err != nil {
			return l.sem.file.wrap(op, err)
		}
		l.inherited = newInherited(opened)
		l.sem.file.writeRecords(l.runs, l.since, true)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, l.inherited.File)
	return nil
}

// An inherited is an open file that commands inherit. It holds the locks of one lease, and
// of those that were split off it.
type inherited struct {
	*os.File
	leases atomic.Int32
}

func newInherited(opened *os.File) *inherited {
	i := &inherited{File: opened}
	i.leases.Store(1)
	return i
}

// unref closes the file after the last lease has ended.
func (i *inherited) unref() {
	if i.leases.Add(-1) == 0 {
		closeUnlocked(i.File)
	}
}

// duplicate locks some slots, which this process holds, on another open file, which can be
// inherited without the others. A lock cannot be transferred, but two open files can both
// hold a shared lock for a moment. So no slot is free at any time.
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
	if _, err := tryLock(fd, shared, presenceLock, 1); err != nil { // succeeds: this process has the lock, so no other has it exclusively
		return err
	}
	lockAgainstCleaners(fd)
	for i, r := range runs {
		if err := f.lockRunOn(fd, r); err != nil {
			for _, moved := range runs[:i] {
				moveLock(fd, f.fd, moved) // the lock of f.fd holds it as well
			}
			return err
		}
	}
	return nil
}

// moveLock moves the lock of one run, or leaves it where it was and returns an error.
func moveLock(from, to int, r run) error {
	for _, step := range []func() error{
		func() error { return changeLock(from, shared, r) },
		func() error { return changeLock(to, shared, r) },
		func() error { return changeLock(from, none, r) },
		func() error { return changeLock(to, exclusive, r) },
	} {
		if err := step(); err != nil {
			return errors.Join(fmt.Errorf("cannot move a lock: %w", err), changeLock(from, shared, r), changeLock(to, none, r), changeLock(from, exclusive, r))
		}
	}
	return nil
}

// changeLock changes the lock of a run, and fails if another process has one.
func changeLock(fd int, kind lockKind, r run) error {
	ok, err := tryLock(fd, kind, r.offset(), int64(r.n))
	if err == nil && !ok {
		err = errors.New("another process has a lock on it")
	}
	return err
}
