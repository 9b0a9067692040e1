package sqlitestore

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// An owner is the right to a file: a lock on another one beside it. SQLite's own
// locks are not used for it, since they would keep readers out; nor is the file
// itself locked, since closing it would undo SQLite's.
type owner struct{ lock *os.File }

// ErrOwned is for a file that another process has open.
var ErrOwned = errors.New("a file has one owner")

// own takes the right to a file, which one process has at a time.
func own(path string) (*owner, error) {
	lock, err := os.OpenFile(path+"-owner", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, faultOf(path, fmt.Errorf("its lock: %w", err))
	}
	locked, err := tryLock(lock)
	switch {
	case err != nil:
		lock.Close()
		return nil, faultOf(path, fmt.Errorf("its lock %s: %w", lock.Name(), err))
	case !locked:
		defer lock.Close()
		return nil, faultOf(path, fmt.Errorf("%s has it open, and %w; stop that one, or reach its semaphores through it", whose(lock), ErrOwned))
	}
	host, _ := os.Hostname()
	if lock.Truncate(0) == nil { // who it is, for people; the lock is what counts
		fmt.Fprintf(lock, "process %d on %s\n", os.Getpid(), host)
	}
	return &owner{lock}, nil
}

// release gives the right back. The file beside stays: another may be about to
// lock it.
func (o *owner) release() {
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
