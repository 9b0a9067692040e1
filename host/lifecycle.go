package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sema-go/sema"
)

// use starts a call that is not an acquire. It keeps the file mapped until leave is
// called.
func (s *Semaphore) use(ctx context.Context, op string) (leave func(), err error) {
	if ctx == nil {
		return nil, s.newError(op, 0, sema.ErrInvalid, nilContext)
	}
	if !s.file.ref() {
		return nil, s.newError(op, 0, sema.ErrClosed, "")
	}
	if s.closed.Load() {
		s.file.unref()
		return nil, s.newError(op, 0, sema.ErrClosed, "")
	}
	return s.file.unref, nil
}

// change runs do, which changes the stored values, and wakes all waiters of the host.
func (s *Semaphore) change(ctx context.Context, op string, do func(f *file) error) error {
	leave, err := s.use(ctx, op)
	if err != nil {
		return err
	}
	defer leave()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f := s.file
	if err := f.deleted(); err != nil {
		return f.wrap(op, err)
	}
	return f.wrap(op, f.guarded(func() error {
		defer f.wakeAll()
		return do(f)
	}))
}

// Resize changes the capacity for all processes, and stores it. Shrinking revokes no
// permits: nothing is granted until enough permits are released. Capacity 0 pauses the
// semaphore. Waiters that ask for more than the new capacity fail with ErrTooLarge.
func (s *Semaphore) Resize(ctx context.Context, capacity int64) error {
	const op = "resize"
	if capacity < 0 || capacity > MaxCapacity {
		err := s.newError(op, 0, sema.ErrInvalid, fmt.Sprintf("to %d", capacity))
		err.Advice = fmt.Sprintf("use 0 to %d", MaxCapacity)
		return err
	}
	if err := s.change(ctx, op, func(f *file) error { return f.resize(capacity) }); err != nil {
		return err
	}
	s.monitor.Report(sema.Event{Kind: sema.EventResized, Capacity: capacity})
	return nil
}

// resize stores the capacity and marks the config unsettled: claims count the held
// slots until no slot beyond the capacity is held.
func (f *file) resize(capacity int64) error {
	for {
		reach := f.head.reach.Load()
		if int64(reach) >= capacity {
			break
		}
		if err := f.addSlots(int64(reach), capacity); err != nil {
			return err
		}
		if f.head.reach.CompareAndSwap(reach, uint32(capacity)) {
			break
		}
	}
	f.changeConfig(func(c config) config { return c.changed(capacity, unsettled|c&drainingFlag) })
	return nil
}

func (f *file) changeConfig(to func(config) config) {
	for {
		c := f.config()
		if f.damaged.Load() || f.head.config.CompareAndSwap(uint64(c), uint64(to(c))) {
			return
		}
	}
}

// SetMaxWaiters changes the bound of waiters for all processes, and stores it. 0 means
// no bound, [sema.NoWaiters] that no caller may wait. Callers that already wait stay
// in the queue.
func (s *Semaphore) SetMaxWaiters(ctx context.Context, n int) error {
	const op = "set max waiters"
	if n < sema.NoWaiters || n > maxStoredWaiters {
		err := s.newError(op, 0, sema.ErrInvalid, fmt.Sprintf("to %d", n))
		err.Advice = fmt.Sprintf("use 0 to %d, or sema.NoWaiters", maxStoredWaiters)
		return err
	}
	return s.change(ctx, op, func(f *file) error { f.head.maxWaiters.Store(int64(n)); return nil })
}

// Drain rejects acquires and waiters of all processes with ErrDraining, and waits
// until all permits are released. The state is stored: it lasts until
// [Semaphore.Resume], also while no process has the semaphore open. If ctx ends first,
// the error wraps its cause and contains the number of held permits. Drain returns
// early, with an error, if Resume is called.
func (s *Semaphore) Drain(ctx context.Context) error {
	const op = "drain"
	leave, err := s.use(ctx, op)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.change(context.WithoutCancel(ctx), op, func(f *file) error {
		f.changeConfig(func(c config) config { return c.changed(c.capacity(), drainingFlag|c&unsettled) })
		return nil
	}); err != nil {
		return err
	}
	s.monitor.Report(sema.Event{Kind: sema.EventDrained})
	return s.waitDrained(ctx, op)
}

var errResumed = errors.New("resumed before all permits were released")

// waitDrained waits until no permit is held. It polls, because a release notifies only
// processes that wait for permits.
func (s *Semaphore) waitDrained(ctx context.Context, op string) error {
	f := s.file
	for {
		info, err := f.inspect(context.WithoutCancel(ctx), false)
		var why error
		advice := ""
		switch {
		case err != nil:
			return f.wrap(op, err)
		case info.Stats.InUse == 0:
			return nil
		case !info.Stats.Draining:
			why = errResumed
		case s.closed.Load():
			why = sema.ErrClosed
		case ctx.Err() != nil:
			why = context.Cause(ctx)
			advice = cmp.Or(sema.Hint(why), "wait again; Inspect lists the holders")
		}
		if why != nil {
			return &sema.Error{Op: op, Name: s.name, InUse: info.Stats.InUse, Err: why,
				Detail: fmt.Sprintf("%d of %d permits are still held", info.Stats.InUse, info.Stats.Capacity),
				Advice: advice}
		}
		select {
		case <-time.After(f.timing.poll):
		case <-ctx.Done():
		}
	}
}

// Resume ends draining for all processes.
func (s *Semaphore) Resume(ctx context.Context) error {
	return s.change(ctx, "resume", func(f *file) error {
		f.changeConfig(func(c config) config { return c.changed(c.capacity(), c&unsettled) })
		return nil
	})
}
