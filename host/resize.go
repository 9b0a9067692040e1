package host

import (
	"errors"
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
	if err := f.deleted(); err != nil {
		return f.wrap("resize", err)
	}
	if err := f.guarded(func() error { f.resize(capacity); return nil }); err != nil {
		return f.wrap("resize", err)
	}
	s.tell(sema.Event{Kind: sema.EventResized, Capacity: capacity})
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
	alone := f.refs.Load() == 1
	if alone {
		var err error
		if alone, err = tryLock(f.fd, exclusive, presenceLock, 1); err != nil {
			return f.wrap("remove", err)
		}
	}
	if !alone {
		return &sema.Error{Op: "remove", Name: f.name, Err: sema.ErrInvalid, Detail: "it is in use; close it everywhere first"}
	}
	if err := os.Remove(f.path); err != nil {
		_, lockErr := tryLock(f.fd, shared, presenceLock, 1)
		return f.wrap("remove", errors.Join(err, lockErr))
	}
	return nil
}
