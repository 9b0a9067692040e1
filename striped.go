package sema

import (
	"context"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Striped is a semaphore for permits of weight 1 that many cores take and
// return all the time and seldom run out of. Its permits lie in several cells,
// so that cores do not fight over one cache line; the bound is exact all the
// same. Make it with [NewStriped].
//
// It pays when profiles show the word of a [Semaphore] bouncing between cores,
// that is with very short holds and a capacity well above what is in use. When
// callers mostly wait, or for weights, order, Resize or Drain, use a Semaphore;
// likewise if it is observed, which costs more than the striping saves. Arrivals may
// overtake waiters, but each release goes to a waiter first, so that none starves.
type Striped struct {
	cells    []cell
	monitor  *Monitor // nil unless observed or diagnosed
	shift    uint8    // 64 − log2 of the cells
	capacity int64
	maxWait  time.Duration
	name     string

	// Callers in need of line. A release looks here after it returned its
	// permit to a cell, and a caller counts itself here before it looks through
	// the cells a last time: so one of them sees the other.
	needy  atomic.Int64
	queue  core // waiters, and permits on their way to them; of no capacity
	spares sync.Pool
	spared atomic.Int64 // permits on handles of spares
	issuer Issuer       // of permits that are observed
}

var _ Gate = (*Striped)(nil)

// A cell has a share of the permits and a handle for one of them. As a Lease
// it is where a permit returns to.
type cell struct {
	free  atomic.Int64
	owner *Striped
	slot  handle
	_     [48]byte // two cache lines, so that neighbours share none
}

// NewStriped creates a striped semaphore. It panics unless 1 ≤ capacity ≤
// [MaxCapacity]: a larger one bounds nothing.
func NewStriped(capacity int64, opts ...SharedOption) *Striped {
	if capacity < 1 || capacity > MaxCapacity {
		panic(fmt.Sprintf("sema: NewStriped(%d): want 1 ≤ capacity ≤ %d", capacity, MaxCapacity))
	}
	log := bits.Len(uint(max(2, min(2*runtime.GOMAXPROCS(0), 128)) - 1))
	conf := newConfig(opts)
	s := &Striped{cells: make([]cell, 1<<log), shift: uint8(64 - log), capacity: capacity, maxWait: conf.MaxWait, name: conf.Name}
	s.queue.queueLimit = queueLimit(conf.MaxWaiters)
	if s.monitor = conf.newMonitor(); s.monitor != nil {
		s.monitor.stats = s
	}
	s.issuer.Init((*stripedOwner)(s), s.monitor)
	share, rest := capacity>>log, capacity&(1<<log-1)
	for i := range s.cells {
		c := &s.cells[i]
		c.owner = s
		c.slot.kind, c.slot.lease = cellHandle, c
		c.slot.issuer.Store(&s.issuer)
		c.free.Store(share)
		if int64(i) < rest {
			c.free.Add(1)
		}
	}
	return s
}

// Name returns the name that the option [Name] gave it.
func (s *Striped) Name() string { return s.name }

// Acquire takes a permit, waiting for one if there is none. n must be 1, or 0,
// which is granted at once as an inert permit; more is ErrTooLarge. Otherwise
// it fails with the context's cause, ErrQueueFull, ErrTimeout (options MaxWaiters,
// MaxWait) or ErrInvalid, like [Semaphore.Acquire].
func (s *Striped) Acquire(ctx context.Context, n int64) (Permit, error) {
	if n == 1 && len(s.cells) > 0 && s.monitor == nil && ctx != nil && ctx.Err() == nil {
		if c := s.home(); c.take() {
			return c.permit(), nil
		}
	}
	return s.acquire(ctx, n)
}

// TryAcquire takes a permit if one is free, in whatever cell, and fails with
// ErrFull otherwise.
func (s *Striped) TryAcquire(ctx context.Context, n int64) (Permit, error) {
	const op = "try"
	if n != 1 || len(s.cells) == 0 || ctx == nil || ctx.Err() != nil {
		return s.unusual(ctx, op, n)
	}
	watch := s.monitor.begin(ctx, n)
	if !s.takeAnywhere() {
		s.queue.reject()
		return s.conclude(ctx, op, &watch, full)
	}
	return s.conclude(ctx, op, &watch, granted)
}

func (s *Striped) acquire(ctx context.Context, n int64) (Permit, error) {
	const op = "acquire"
	if n != 1 || len(s.cells) == 0 || ctx == nil || ctx.Err() != nil {
		return s.unusual(ctx, op, n)
	}
	watch := s.monitor.Begin(ctx, n)
	if s.takeAnywhere() {
		return s.conclude(ctx, op, &watch, granted)
	}
	if s.monitor != nil { // reports first, and queues afterwards
		v := s.queue.tryOrWait(1)
		if v != pending {
			return s.conclude(ctx, op, &watch, v)
		}
		watch.Queued()
		if ctx.Err() != nil { // it may have ended while observers ran
			return s.conclude(ctx, op, &watch, cancelled)
		}
	}
	return s.conclude(ctx, op, &watch, s.wait(ctx))
}

// conclude turns a status into a permit or an error, and reports it.
func (s *Striped) conclude(ctx context.Context, op string, watch *Wait, v status) (Permit, error) {
	switch {
	case v == granted && s.monitor == nil:
		return s.home().permit(), nil
	case v == granted:
		return watch.Granted(&s.issuer), nil
	case v == cancelled:
		return Permit{}, watch.Failed(context.Cause(ctx))
	}
	detail := ""
	if v == timedOut {
		detail = s.maxWait.String()
	}
	return Permit{}, watch.Failed(s.fault(op, 1, sentinelOf(v), detail))
}

func (s *Striped) wait(ctx context.Context) status {
	s.needy.Add(1)
	defer s.needy.Add(-1)
	if s.takeAnywhere() {
		return granted
	}
	w, v := s.queue.enter(1, ctx.Done())
	if v == pending {
		v = s.queue.park(ctx, w, s.maxWait)
	}
	return v
}

// A stripedOwner is a Striped as its issuer sees it.
type stripedOwner Striped

// TakeBack implements [Owner].
func (s *stripedOwner) TakeBack(int64) { (*Striped)(s).home().Release() }

// Name returns the name of the Striped.
func (s *stripedOwner) Name() string { return s.name }

// takeAnywhere looks through all cells from home on, and among the permits
// that were on their way to a waiter that left.
func (s *Striped) takeAnywhere() bool {
	home := s.homeIndex()
	for i := range s.cells {
		c := &s.cells[(home+uint64(i))%uint64(len(s.cells))]
		for c.free.Load() > 0 {
			if c.take() {
				return true
			}
		}
	}
	return s.queue.takeAgain(1)
}

// Release takes a permit back. While somebody waits it goes to them.
func (c *cell) Release() {
	if c.owner.needy.Load() > 0 {
		c.owner.queue.give(1)
		return
	}
	c.put()
}

// put puts a permit into the cell, and takes it out again should somebody have
// begun to wait who saw the cell empty.
func (c *cell) put() {
	s := c.owner
	c.free.Add(1)
	for s.needy.Load() > 0 && c.free.Load() > 0 {
		if c.take() {
			s.queue.give(1)
			return
		}
	}
}

// Stats adds up what the cells have one after the other, so that under load Free, InUse
// and Acquired are approximate. The rest is exact.
func (s *Striped) Stats() Stats {
	st := s.queue.stats()
	st.Capacity, st.Debt = s.capacity, 0
	st.Acquired = s.spared.Load() + s.issuer.issued()
	for i := range s.cells {
		c := &s.cells[i]
		st.Free += c.free.Load()
		st.Acquired += int64(c.slot.gen.Load()+1) / 2
	}
	st.Free = min(st.Free, s.capacity)
	st.InUse = s.capacity - st.Free
	return st
}

func (s *Striped) home() *cell { return &s.cells[s.homeIndex()] }

func (s *Striped) homeIndex() uint64 { return stackHint(s.shift) }

func (c *cell) take() bool {
	free := c.free.Load()
	return free > 0 && c.free.CompareAndSwap(free, free-1)
}

// permit makes a permit that returns to this cell.
func (c *cell) permit() Permit {
	h := &c.slot
	if gen := h.gen.Load(); gen&1 == 0 && h.gen.CompareAndSwap(gen, gen+1) {
		return Permit{h, gen + 1, 1}
	}
	h, ok := c.owner.spares.Get().(*handle)
	if !ok {
		h = &handle{kind: spareCellHandle}
		h.issuer.Store(&c.owner.issuer)
	}
	h.lease = c
	c.owner.spared.Add(1)
	return Permit{h, h.gen.Add(1), 1}
}

// unusual handles calls that are decided without looking for a permit.
func (s *Striped) unusual(ctx context.Context, op string, n int64) (Permit, error) {
	var err error
	switch {
	case len(s.cells) == 0:
		panic("sema: " + op + " on a zero Striped; make it with sema.NewStriped")
	case ctx == nil:
		err = s.fault(op, n, ErrInvalid, nilContext)
	case n < 0:
		err = s.fault(op, n, ErrInvalid, "negative weight")
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case n > 1:
		s.queue.reject()
		err = s.fault(op, n, ErrTooLarge, "the permits of a Striped are of weight 1")
	default: // n == 0
		return Permit{}, nil
	}
	watch := s.monitor.begin(ctx, n)
	return Permit{}, watch.Failed(err)
}

func (s *Striped) fault(op string, n int64, err error, detail string) error {
	st := s.Stats()
	return &Error{Op: op, Name: s.name, Weight: n, Capacity: st.Capacity, InUse: st.InUse, Waiters: st.Waiters, Err: err, Detail: detail}
}
