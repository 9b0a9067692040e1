package host

import (
	"fmt"
	"os"

	"github.com/sema-go/sema"
)

// Resize changes the capacity for all who have the semaphore open. Shrinking
// revokes nothing: nobody is admitted until enough permits are back. At 0 the
// semaphore is paused. Those who wait for more than there can be now fail with
// ErrTooLarge.
func (s *Semaphore) Resize(capacity int64) error {
	f := s.file
	if !f.ref() {
		return s.fault("resize", 0, sema.ErrClosed, "")
	}
	defer f.unref()
	switch {
	case s.closed.Load():
		return s.fault("resize", 0, sema.ErrClosed, "")
	case capacity < 0 || capacity > MaxCapacity:
		return s.fault("resize", 0, sema.ErrInvalid, fmt.Sprintf("to %d: want 0 to %d", capacity, MaxCapacity))
	}
	f.resize(capacity)
	s.tell(sema.Event{Kind: sema.Resized, Capacity: capacity})
	return nil
}

// resize leaves the file unsettled: claims have to count until nothing beyond
// the capacity is held.
func (f *file) resize(capacity int64) {
	for {
		reach := f.head.reach.Load()
		if int64(reach) >= capacity || f.head.reach.CompareAndSwap(reach, uint32(capacity)) {
			break
		}
	}
	for {
		c := f.config()
		if f.head.config.CompareAndSwap(uint64(c), uint64(c.changed(capacity, unsettled))) {
			break
		}
	}
	f.wakeAll()
}

// remove deletes the file, if nobody else has it open and this process has it
// once, for this.
func (f *file) remove() error {
	files.mu.Lock()
	defer files.mu.Unlock()
	inUse := &sema.Error{Op: "remove", Name: f.name, Err: sema.ErrInvalid, Detail: "it is in use; close it everywhere first"}
	if f.refs.Load() > 1 {
		return inUse
	}
	alone, err := tryLock(f.fd, exclusive, presenceLock, 1)
	switch {
	case err != nil:
		return f.wrap("remove", err)
	case !alone:
		return inUse
	}
	return f.wrap("remove", os.Remove(f.path))
}
