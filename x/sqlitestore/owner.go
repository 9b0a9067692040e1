package sqlitestore

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// An owner is the right of one process to a file. It holds two locks:
//
//   - on the file path-owner, which says who the owner is, and also guards the path
//     if the database is removed under its owner;
//   - on the database itself, where the system allows it beside SQLite's locks, so
//     that a file that is reached under another path (moved, bind-mounted) has one
//     owner too.
//
// SQLite's own locks are not used for it, since they would block readers. The
// database stays open until SQLite has closed it: to close any descriptor of a file
// drops the POSIX locks that SQLite holds on it.
type owner struct{ lock, database *os.File }

// ErrOwned is for a file that another process has open.
var ErrOwned = errors.New("a file has one owner")

// own acquires the right to a file, and creates the file if there is none.
func own(path string) (*owner, error) {
	lock, err := os.OpenFile(path+"-owner", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, faultOf(path, fmt.Errorf("its lock: %w", err))
	}
	o := &owner{lock: lock}
	locked, err := tryLock(lock)
	switch {
	case err != nil:
		lock.Close()
		return nil, faultOf(path, fmt.Errorf("its lock %s: %w", lock.Name(), err))
	case !locked:
		defer lock.Close()
		return nil, faultOf(path, fmt.Errorf("%s has it open, and %w; stop that one, or reach its semaphores through it", whose(lock), ErrOwned))
	}
	if err := o.lockDatabase(path); err != nil {
		o.release()
		return nil, faultOf(path, err)
	}
	host, _ := os.Hostname()
	if lock.Truncate(0) == nil { // who it is, for people; the lock is what counts
		fmt.Fprintf(lock, "process %d on %s\n", os.Getpid(), host)
	}
	return o, nil
}

// lockDatabase locks the database itself, and rejects one with several hard links:
// the write-ahead log is found by the name of the database, so that what one name
// has committed is missing, or damage, under another.
func (o *owner) lockDatabase(path string) (err error) {
	if o.database, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return err
	}
	info, err := o.database.Stat()
	if err != nil {
		return err
	}
	if links, number := hardLinks(o.database, info); links > 1 {
		return fmt.Errorf("the file has %d hard links, and its write-ahead log belongs to one of them; remove the others: find MOUNTPOINT -xdev -inum %d", links, number)
	}
	locked, err := tryLockDatabase(o.database)
	switch {
	case err != nil:
		return fmt.Errorf("lock it: %w", err)
	case !locked:
		return fmt.Errorf("another process has it open under another path (it was moved, linked or mounted there), and %w; stop that one", ErrOwned)
	}
	return nil
}

// release returns the right, when SQLite has closed the file. The lock file stays:
// another process may be about to lock it.
func (o *owner) release() {
	if o.database != nil {
		unlockDatabase(o.database)
		o.database.Close()
	}
	unlock(o.lock)
	o.lock.Close()
}

// whose is what the owner wrote about itself.
func whose(lock *os.File) string {
	text := make([]byte, 200)
	n, _ := lock.ReadAt(text, 0)
	if who := strings.TrimSpace(string(text[:n])); who != "" {
		return who
	}
	return "another process"
}
