package sqlitestore

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sema-go/sema/x/internal/filelock"
)

// An owner is the exclusive right of one process to a file. It holds two locks:
//
//   - on the file path-owner, which contains the PID and host of the owner. This lock
//     also guards the path if the database is removed while it has an owner;
//   - on the database itself, if the system allows it besides SQLite's locks, so that a
//     file that is opened under another path (moved, bind-mounted) has one owner too.
//
// SQLite's own locks are not used for this, since they would block readers. The
// descriptor of the database stays open until SQLite has closed the file: closing any
// descriptor of a file drops the POSIX locks that SQLite holds on it.
type owner struct{ lock, database *os.File }

// ErrOwned is returned for a file that is already open, in another process or in this
// process under another path.
var ErrOwned = errors.New("the file already has an owner")

// own makes this process the owner of a file, and creates the file if it does not exist.
func own(path string) (*owner, error) {
	lock, err := os.OpenFile(path+"-owner", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, wrapError(path, fmt.Errorf("open the lock file: %w", err))
	}
	o := &owner{lock: lock}
	locked, err := filelock.Try(lock)
	switch {
	case err != nil:
		lock.Close()
		return nil, wrapError(path, fmt.Errorf("lock %s: %w", lock.Name(), err))
	case !locked:
		defer lock.Close()
		return nil, wrapError(path, fmt.Errorf("%w: %s has it open; stop that process, or reach its semaphores through it", ErrOwned, ownerText(lock)))
	}
	if err := o.lockDatabase(path); err != nil {
		o.release()
		return nil, wrapError(path, err)
	}
	host, _ := os.Hostname()
	if lock.Truncate(0) == nil { // the text is for operators; only the lock matters
		fmt.Fprintf(lock, "process %d on %s\n", os.Getpid(), host)
	}
	return o, nil
}

// lockDatabase opens and locks the database itself. It rejects a file with several hard
// links: SQLite finds the write-ahead log by the name of the database, so commits under
// one name would be missing, or cause damage, under another.
func (o *owner) lockDatabase(path string) (err error) {
	if o.database, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return err
	}
	info, err := o.database.Stat()
	if err != nil {
		return err
	}
	if links, number := hardLinks(o.database, info); links > 1 {
		return fmt.Errorf("the file has %d hard links, and its write-ahead log belongs to one of them; remove the others (find MOUNTPOINT -xdev -inum %d)", links, number)
	}
	locked, err := tryLockDatabase(o.database)
	switch {
	case err != nil:
		return fmt.Errorf("lock the database: %w", err)
	case !locked:
		return fmt.Errorf("%w: another process has it open under another path (it was moved, linked or mounted there); stop that process", ErrOwned)
	}
	return nil
}

// release drops the locks, after SQLite has closed the file. It does not remove the
// lock file: another process may be about to lock it.
func (o *owner) release() {
	if o.database != nil {
		unlockDatabase(o.database)
		o.database.Close()
	}
	filelock.Unlock(o.lock)
	o.lock.Close()
}

// ownerText returns the text that the owner wrote into the lock file.
func ownerText(lock *os.File) string {
	text := make([]byte, 200)
	n, _ := lock.ReadAt(text, 0)
	if owner := strings.TrimSpace(string(text[:n])); owner != "" {
		return owner
	}
	return "another process"
}
