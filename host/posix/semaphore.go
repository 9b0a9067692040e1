package posix

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/sema-go/sema"
)

// MaxValue is the highest value a semaphore can have, SEM_VALUE_MAX.
const MaxValue = 1<<31 - 1

// A Semaphore is a POSIX semaphore of this host, as this process has it open.
// Make it with [Open], [Create], [New], [Init] or [Attach]; the zero Semaphore
// is a closed one. All methods may be called concurrently.
type Semaphore struct {
	open          atomic.Bool
	unlinkOnClose atomic.Bool
	memory        *memory
	closing       chan struct{} // closed by Close
	name          string        // "" for semaphores without one
	file          inode         // what name stood for when it was opened
}

func newSemaphore(m *memory, name string, file inode) *Semaphore {
	s := &Semaphore{memory: m, closing: make(chan struct{}), name: name, file: file}
	s.open.Store(true)
	return s
}

// Wait lowers the value by one, waiting while it is zero. It fails with the
// context's cause as soon as ctx ends, and at once if it has ended; with
// [sema.ErrClosed] when the semaphore is closed; with [sema.ErrInvalid] if ctx is
// nil. Goroutines of one process that wait are served in turn; arrivals, here
// and in other processes, may overtake them.
func (s *Semaphore) Wait(ctx context.Context) error {
	if ctx != nil && ctx.Err() == nil && s.open.Load() && s.memory.take() {
		return nil
	}
	return s.wait(ctx, "wait")
}

// TryWait lowers the value by one if it is not zero, and says whether it did.
func (s *Semaphore) TryWait() bool { return s.open.Load() && s.memory.take() }

// Post raises the value by one and wakes one waiter, in any process. Any process may
// post, whichever waited. At [MaxValue] it fails with
// [sema.ErrOverRelease] and changes nothing, and after Close with
// [sema.ErrClosed]: post first, or the permit is lost to the whole host. (The
// permits of a [Gate] can be released after Close.)
func (s *Semaphore) Post() error {
	if !s.open.Load() {
		return s.fault("post", sema.ErrClosed, "")
	}
	if !s.memory.post() {
		return s.fault("post", sema.ErrOverRelease, fmt.Sprintf("the value is at its maximum, %d", MaxValue))
	}
	return nil
}

// Value is the value now, 0 after Close.
func (s *Semaphore) Value() uint32 {
	if !s.open.Load() {
		return 0
	}
	return valueOf(s.memory.load())
}

// Waiters is how many threads are counted as waiting now, in all processes, 0
// after Close. A process that uses this package counts as one, however many
// of its goroutines wait; one that was killed while it waited is counted for
// ever.
func (s *Semaphore) Waiters() uint32 {
	if !s.open.Load() {
		return 0
	}
	return waitersOf(s.memory.load())
}

// Repair sets the value and wakes all waiters, to look again. It returns the value
// before. It is for an operator, or a supervisor, that knows how many
// permits are truly free after a process was killed; what others take and post
// meanwhile is overwritten, so all should be at rest.
//
// If no permit is missing and only a wake-up was lost, so that a process waits
// although the value is above zero, TryWait followed by Post will do, at any
// time.
func (s *Semaphore) Repair(value uint32) (was uint32, err error) {
	if !s.open.Load() {
		return 0, s.fault("repair", sema.ErrClosed, "")
	}
	if err := checkValue("repair", s.name, value); err != nil {
		return 0, err
	}
	return s.memory.repair(value), nil
}

// Name is the name with one leading slash, however it was spelt, or "" if the
// semaphore has none.
func (s *Semaphore) Name() string { return s.name }

// UnlinkOnClose makes Close remove the name too, if it still stands for this
// semaphore. It does nothing for semaphores without a name.
func (s *Semaphore) UnlinkOnClose() { s.unlinkOnClose.Store(true) }

// Close rejects, in this process, all waiters and all further calls
// with [sema.ErrClosed]; permits of a [Gate] that are held can still be
// released. The value stays what it is, and others go on using the semaphore.
// Closing again does nothing and returns nil.
//
// It does not wait for other goroutines to notice. Memory that is this
// package's stays mapped until none of them can touch it any more; before you
// unmap what you gave to [Init] or [Attach], see to it yourself.
func (s *Semaphore) Close() error {
	if !s.open.CompareAndSwap(true, false) {
		return nil
	}
	close(s.closing)
	s.memory.stir()
	if s.name == "" || !s.unlinkOnClose.Load() {
		return nil
	}
	return unlinkIfStill(s.name, s.file)
}

// wait is Wait when it did not succeed at once.
func (s *Semaphore) wait(ctx context.Context, op string) error {
	if ctx == nil {
		return s.fault(op, sema.ErrInvalid, "nil context")
	}
	if err := s.refusal(ctx, op); err != nil {
		return err
	}
	m := s.memory
	if !m.turns.enter(ctx.Done(), s.closing) {
		return s.refusal(ctx, op)
	}
	defer m.turns.leave()
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, m.stir)
		defer stop()
	}
	var refused error
	err := m.sleep(func() bool {
		refused = s.refusal(ctx, op)
		return refused != nil
	})
	if err != nil {
		return s.fault(op, err, "")
	}
	return refused
}

// refusal returns why a caller with this context may not wait any longer, or nil.
func (s *Semaphore) refusal(ctx context.Context, op string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !s.open.Load() {
		return s.fault(op, sema.ErrClosed, "")
	}
	return nil
}

func (s *Semaphore) fault(op string, err error, detail string) error {
	return fault(op, s.name, err, detail)
}

func fault(op, name string, err error, detail string) error { return hinted(op, name, err, detail, "") }

// hinted returns an error with facts and advice.
func hinted(op, name string, err error, detail, advice string) error {
	return &sema.Error{Op: op, Name: name, Err: err, Detail: detail, Advice: advice}
}

func checkValue(op, name string, value uint32) error {
	if value > MaxValue {
		return fault(op, name, sema.ErrInvalid, fmt.Sprintf("value %d is above the maximum, %d", value, MaxValue))
	}
	return nil
}
