package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/internal/tally"
)

// MaxCapacity is the highest capacity of a semaphore. For larger quantities, such as
// bytes or dollars, count in larger units. An acquire that has to scan the slots reads
// the owner of each, about 0.1 ms for the highest capacity, and makes a system call for each
// process that holds permits and for each permit that a command inherited.
const MaxCapacity = maxCapacity

// Existing in place of a capacity makes [Open] open a semaphore with its stored
// capacity. Open fails with [io/fs.ErrNotExist] if the semaphore does not exist.
const Existing = -1

// A Semaphore bounds how much of a resource the processes of this machine use at the
// same time. Create it with [Open]. All methods may be called concurrently.
type Semaphore struct {
	name    string
	file    *file
	monitor *sema.Monitor // nil unless observed or diagnosed
	maxWait time.Duration // 0: no bound
	closed  atomic.Bool
	tally   tally.Tally
	leases  sync.Pool // of *lease, without a monitor
}

var _ sema.Gate = (*Semaphore)(nil)

// Open opens the semaphore with the given name, and creates it if it does not exist.
//
// The capacity, from 0 (paused) to [MaxCapacity], and [sema.MaxWaiters] are stored
// when the semaphore is created, and apply to all processes. Open with other values
// succeeds: the stored values apply. [sema.EventMismatched] reports the difference to
// the observers; without observers, the default logger logs it once. [Semaphore.Resize]
// and [Semaphore.SetMaxWaiters] change the stored values, which stay while no process
// has the semaphore open. [Remove] deletes the semaphore.
func Open(name string, capacity int64, opts ...Option) (*Semaphore, error) {
	if capacity != Existing && (capacity < 0 || capacity > MaxCapacity) {
		return nil, openError(name, sema.ErrInvalid, fmt.Sprintf("capacity %d", capacity), fmt.Sprintf("use 0 to %d, or Existing", MaxCapacity))
	}
	set, path, err := locate("open", name, opts)
	if err != nil {
		return nil, err
	}
	want := stored{capacity, set.MaxWaiters}
	f, err := openFile(name, path, want, set.access)
	if err != nil {
		return nil, err
	}
	s := &Semaphore{name: name, file: f, maxWait: set.MaxWait}
	if set.Name != "" {
		s.name = set.Name
	}
	s.monitor = sema.NewMonitor(s, append([]sema.SharedOption{sema.Name(s.name)}, set.shared...)...)
	s.reportMismatch(want)
	return s, nil
}

// loggedMismatches contains the reports already logged, so that a program that opens
// a semaphore for each request logs a mismatch once.
var loggedMismatches sync.Map

// reportMismatch reports the stored values that differ from those passed to Open.
func (s *Semaphore) reportMismatch(want stored) {
	have := s.file.stored()
	var parts []string
	if want.capacity != Existing && want.capacity != have.capacity {
		parts = append(parts, fmt.Sprintf("capacity %d, not %d", have.capacity, want.capacity))
	}
	if want.maxWaiters != 0 && want.maxWaiters != have.maxWaiters { // 0: the option is absent
		parts = append(parts, fmt.Sprintf("%s, not %s", waitersText(have.maxWaiters), waitersText(want.maxWaiters)))
	}
	if len(parts) == 0 || s.file.damaged.Load() {
		return
	}
	report := fmt.Sprintf("semaphore %q is stored with %s; the stored configuration applies", s.name, strings.Join(parts, " and "))
	if s.monitor != nil {
		s.monitor.Report(sema.Event{Kind: sema.EventMismatched, Capacity: have.capacity, Report: report})
		return
	}
	if _, logged := loggedMismatches.LoadOrStore(report, true); !logged {
		slog.Warn("sema: "+report, "hint", "open it with the stored configuration, or change that with Resize and SetMaxWaiters")
	}
}

func waitersText(n int) string {
	switch n {
	case 0:
		return "no bound of waiters"
	case sema.NoWaiters:
		return "no waiters"
	}
	return fmt.Sprintf("at most %d waiters", n)
}

// Name returns the name set by the option [sema.Name]. Default: the name passed to
// Open.
func (s *Semaphore) Name() string { return s.name }

// Scope returns [sema.HostScope], by which [sema.AcquireAll] orders the semaphore.
func (s *Semaphore) Scope() sema.Scope { return sema.HostScope }

// Acquire waits for n permits, in order of arrival among all processes, and returns
// them as one [sema.Permit]. It fails like [sema.Semaphore.Acquire], and with
// [ErrDeleted] and [ErrDamaged].
func (s *Semaphore) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "acquire"
	if n == 1 {
		if p, ok := s.acquireFree(ctx); ok {
			return p, nil
		}
	}
	wait := s.monitor.Begin(ctx, n)
	runs, err := s.take(ctx, op, n)
	if err == errShort {
		if runs, err = s.wait(ctx, &wait, n); err != nil {
			s.tally.Failed(err, !errors.Is(err, sema.ErrQueueFull))
			return sema.Permit{}, wait.Failed(err)
		}
	}
	return s.conclude(&wait, runs, err)
}

// TryAcquire acquires n permits if they are free and no caller waits. Otherwise it
// fails with ErrFull, or like Acquire.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "try"
	if n == 1 {
		if p, ok := s.acquireFree(ctx); ok {
			return p, nil
		}
	}
	wait := s.monitor.BeginTry(ctx, n)
	runs, err := s.take(ctx, op, n)
	if err == errShort {
		err = s.newError(op, n, sema.ErrFull, "")
		s.file.unref()
	}
	return s.conclude(&wait, runs, err)
}

// errShort is the error of take if too few permits are free or other callers wait.
var errShort = errors.New("too few permits free")

// take claims n permits without waiting. If it returns runs or errShort, the caller
// owns a reference to the file. For weight 0 it returns neither.
func (s *Semaphore) take(ctx context.Context, op string, n int64) (runs []run, err error) {
	switch {
	case ctx == nil:
		return nil, s.newError(op, n, sema.ErrInvalid, nilContext)
	case n < 0:
		return nil, s.newError(op, n, sema.ErrInvalid, "negative weight")
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	f := s.file
	if !f.ref() {
		return nil, s.newError(op, n, sema.ErrClosed, "")
	}
	defer func() {
		if runs == nil && err != errShort {
			f.unref()
		}
	}()
	if s.closed.Load() {
		return nil, s.newError(op, n, sema.ErrClosed, "")
	}
	if err := f.checkPath(time.Now()); err != nil {
		return nil, f.wrap(op, err)
	}
	if n == 0 {
		return nil, s.checkZeroWeight(op)
	}
	runs, result, err := s.file.tryClaim(ctx, n)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, f.wrap(op, err)
	case result == claimed:
		return runs, nil
	case result == tooLarge:
		return nil, s.newError(op, n, sema.ErrTooLarge, "")
	case result == draining:
		return nil, s.newError(op, n, sema.ErrDraining, "")
	}
	return nil, errShort
}

// checkZeroWeight returns the error with which a permit of weight 0 is rejected, or nil.
func (s *Semaphore) checkZeroWeight(op string) error {
	c := s.file.config()
	switch {
	case s.file.damaged.Load():
		return s.file.wrap(op, ErrDamaged)
	case c.draining():
		return s.newError(op, 0, sema.ErrDraining, "")
	}
	return nil
}

// wait queues the caller. It takes over the caller's reference to the file, and returns
// it together with the runs. Observers run before the caller joins the queue: they may
// be slow or panic, and no waiter may depend on them.
func (s *Semaphore) wait(ctx context.Context, wait *sema.Wait, n int64) (runs []run, err error) {
	defer func() {
		if runs == nil {
			s.file.unref()
		}
	}()
	if s.file.queueFull() {
		return nil, s.queueFull(n)
	}
	wait.Queued()
	s.tally.Queued()
	defer s.tally.Dequeued()
	if ctx.Err() != nil { // the context may have ended while observers ran
		return nil, context.Cause(ctx)
	}
	return s.file.wait(ctx, s, n)
}

func (s *Semaphore) queueFull(n int64) error {
	return s.newError("acquire", n, sema.ErrQueueFull, waitersText(s.file.stored().maxWaiters))
}

// conclude returns the permit for the claimed runs, or the error, and reports the result.
func (s *Semaphore) conclude(wait *sema.Wait, runs []run, err error) (sema.Permit, error) {
	switch {
	case err != nil:
		s.tally.Failed(err, false)
		return sema.Permit{}, wait.Failed(err)
	case runs == nil: // weight 0
		return sema.Permit{}, nil
	}
	s.tally.Acquired()
	return wait.Granted(&newLease(s, runs).issuer), nil
}

// Close closes s: waiters and later calls fail with ErrClosed. Held permits stay valid
// until they are released. Other processes, and other Semaphores of the same name in
// this process, are not affected. Close always returns nil.
func (s *Semaphore) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return nil
	}
	defer s.file.unref()
	s.file.rejectWaiters(func(w *waiter) error {
		if w.sem != s {
			return nil
		}
		return s.newError("acquire", w.n, sema.ErrClosed, "")
	})
	s.monitor.Report(sema.Event{Kind: sema.EventClosed})
	return nil
}
