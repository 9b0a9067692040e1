package posix

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/sema-go/sema"
)

// MaxValue is the highest value of a semaphore, SEM_VALUE_MAX.
const MaxValue = 1<<31 - 1

// A Semaphore is an open POSIX semaphore. Create it with [Open], [Create], [New],
// [Init] or [Attach]; the zero Semaphore is closed. All methods may be called
// concurrently.
type Semaphore struct {
	open          atomic.Bool
	unlinkOnClose atomic.Bool
	memory        *memory
	closing       chan struct{} // closed by Close
	name          string        // "" for a semaphore without a name
	file          inode         // file of the name when it was opened
}

func newSemaphore(m *memory, name string, file inode) *Semaphore {
	s := &Semaphore{memory: m, closing: make(chan struct{}), name: name, file: file}
	s.open.Store(true)
	return s
}

// Wait decrements the value, waiting while it is 0. It fails with the context's cause
// as soon as ctx ends, and at once if ctx has already ended; with [sema.ErrClosed] if
// the semaphore is closed; with [sema.ErrInvalid] if ctx is nil. Waiting goroutines of
// one process are served in order; new callers, in this and in other processes, may
// overtake them.
func (s *Semaphore) Wait(ctx context.Context) error {
	if ctx != nil && ctx.Err() == nil && s.open.Load() && s.memory.take() {
		return nil
	}
	return s.wait(ctx, "wait")
}

// TryWait decrements the value if it is not 0, and reports whether it did.
func (s *Semaphore) TryWait() bool { return s.open.Load() && s.memory.take() }

// Post increments the value and wakes one waiter, in any process. Any process may post,
// also one that did not wait. At [MaxValue] it fails with [sema.ErrOverRelease] and
// changes nothing. After Close it fails with [sema.ErrClosed]: post before Close, or
// the permit is lost for the whole host. (Permits of a [Gate] can be released after
// Close.)
func (s *Semaphore) Post() error {
	if !s.open.Load() {
		return s.newError("post", sema.ErrClosed, "")
	}
	if !s.memory.post() {
		return s.newError("post", sema.ErrOverRelease, fmt.Sprintf("the value is at its maximum, %d", MaxValue))
	}
	return nil
}

// Value returns the current value, 0 after Close.
func (s *Semaphore) Value() uint32 {
	if !s.open.Load() {
		return 0
	}
	return valueOf(s.memory.load())
}

// Waiters returns the number of threads that count as waiting, in all processes; 0
// after Close. A process that uses this package counts as one, however many of its
// goroutines wait. A process that was killed while it waited stays counted forever.
func (s *Semaphore) Waiters() uint32 {
	if !s.open.Load() {
		return 0
	}
	return waitersOf(s.memory.load())
}

// Repair sets the value, wakes all waiters so that they check it again, and returns the
// previous value. It is meant for an operator, or a supervisor, that knows how many
// permits are really free after a process was killed. It overwrites concurrent waits
// and posts, so no other process should use the semaphore meanwhile.
//
// If only a wake-up was lost, a process waits although the value is above 0, and no
// permit is missing. Then call TryWait and Post instead, which is safe at any time.
func (s *Semaphore) Repair(value uint32) (was uint32, err error) {
	if !s.open.Load() {
		return 0, s.newError("repair", sema.ErrClosed, "")
	}
	if err := checkValue("repair", s.name, value); err != nil {
		return 0, err
	}
	return s.memory.repair(value), nil
}

// Name returns the name with exactly one leading slash, or "" if the semaphore has no
// name.
func (s *Semaphore) Name() string { return s.name }

// UnlinkOnClose makes Close also remove the name, if it still refers to this semaphore.
// It does nothing for semaphores without a name.
func (s *Semaphore) UnlinkOnClose() { s.unlinkOnClose.Store(true) }

// Close rejects all waiters and all further calls of s with [sema.ErrClosed]. Held
// permits of a [Gate] can still be released. The value does not change, and other
// processes can continue to use the semaphore. Closing again does nothing and returns
// nil.
//
// Close does not wait until other goroutines have returned. Memory mapped by this
// package stays mapped until no goroutine can access it. Memory passed to [Init] or
// [Attach] must not be unmapped before all calls of s have returned and all permits are
// released.
func (s *Semaphore) Close() error {
	if !s.open.CompareAndSwap(true, false) {
		return nil
	}
	close(s.closing)
	s.memory.interrupt()
	if s.name == "" || !s.unlinkOnClose.Load() {
		return nil
	}
	return unlinkIfSame(s.name, s.file)
}

// wait implements Wait if the value could not be decremented at once.
func (s *Semaphore) wait(ctx context.Context, op string) error {
	if ctx == nil {
		return s.newError(op, sema.ErrInvalid, "nil context")
	}
	if err := s.rejection(ctx, op); err != nil {
		return err
	}
	m := s.memory
	if !m.turns.enter(ctx.Done(), s.closing) {
		return s.rejection(ctx, op)
	}
	defer m.turns.leave()
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, m.interrupt)
		defer stop()
	}
	var rejected error
	err := m.sleep(func() bool {
		rejected = s.rejection(ctx, op)
		return rejected != nil
	})
	if err != nil {
		return s.newError(op, err, "")
	}
	return rejected
}

// rejection returns the error with which a waiter with this context must end, or nil.
func (s *Semaphore) rejection(ctx context.Context, op string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !s.open.Load() {
		return s.newError(op, sema.ErrClosed, "")
	}
	return nil
}

func (s *Semaphore) newError(op string, err error, detail string) error {
	return newError(op, s.name, err, detail)
}

func newError(op, name string, err error, detail string) error {
	return newHintedError(op, name, err, detail, "")
}

// newHintedError returns an error with facts and advice.
func newHintedError(op, name string, err error, detail, advice string) error {
	return &sema.Error{Op: op, Name: name, Err: err, Detail: detail, Advice: advice}
}

func checkValue(op, name string, value uint32) error {
	if value > MaxValue {
		return newError(op, name, sema.ErrInvalid, fmt.Sprintf("value %d is above the maximum, %d", value, MaxValue))
	}
	return nil
}
