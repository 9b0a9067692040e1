package sema

import (
	"context"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A Striped is a semaphore for permits of weight 1 that many cores acquire and release
// all the time and that are seldom exhausted. Its permits are distributed over several
// cells, so that cores do not contend for one cache line. The bound is exact all the
// same. Create one with [NewStriped].
//
// It pays off if profiles show cores contending for the cache line of a [Semaphore].
// That happens with very short holds and a capacity well above what is in use. Use a
// Semaphore if callers mostly wait, or if you need weights or an order. Use one also if
// it is observed, which costs more than the striping saves. Arrivals may overtake
// waiters, but each release goes to a waiter first, so that no waiter starves.
//
// A Striped that is draining, closed, in debt after a shrink or watched by WaitIdle
// serves strictly in order of arrival. It then costs as much as a Semaphore.
type Striped struct {
	cells   []cell
	monitor *Monitor      // nil unless observed or diagnosed
	shift   uint8         // 64 − log2 of the number of cells
	moves   atomic.Uint64 // sequence lock: odd while permits move between the cells and the queue, see stripedlifecycle.go
	maxWait time.Duration
	name    string

	// demand counts the callers that are queued or about to be, plus one while the
	// permits are gathered. A release reads it after it returned its permit to a cell. A
	// caller increments it before it searches the cells a last time. So one of them sees
	// the other.
	demand       atomic.Int64
	queue        core // the waiters and the permits that are in no cell; permits in cells and held ones count as in use
	spareHandles sync.Pool
	spareIssued  atomic.Int64 // permits issued on spare handles
	issuer       Issuer       // of observed permits
	gathered     atomic.Bool  // the cells are shut; written only with queue.mu held
}

var _ Gate = (*Striped)(nil)

// A cell contains a share of the permits, and a handle for one of them. As a Lease it is
// the place to which a permit returns.
type cell struct {
	free  atomic.Int64 // permits in the cell, plus shutCell while the permits are gathered
	owner *Striped
	slot  handle
	_     [48]byte // fills two cache lines, so that neighbours share none
}

// NewStriped returns a striped semaphore with capacity permits, all free. A capacity of
// 0 pauses it until a Resize. A capacity above [MaxCapacity] means unlimited. NewStriped
// panics if capacity is negative.
func NewStriped(capacity int64, opts ...SharedOption) *Striped {
	conf := newConfig(opts)
	free := checkCapacity("NewStriped", conf.Name, capacity)
	log := bits.Len(uint(max(2, min(2*runtime.GOMAXPROCS(0), 128)) - 1))
	s := &Striped{cells: make([]cell, 1<<log), shift: uint8(64 - log), maxWait: conf.MaxWait, name: conf.Name}
	s.queue.capacity = free
	s.queue.queueLimit = queueLimit(conf.MaxWaiters)
	if s.monitor = conf.newMonitor(); s.monitor != nil {
		s.monitor.stats = s
	}
	s.issuer.Init((*stripedOwner)(s), s.monitor)
	for i := range s.cells {
		c := &s.cells[i]
		c.owner = s
		c.slot.kind, c.slot.lease = cellHandle, c
		c.slot.issuer.Store(&s.issuer)
		c.free.Store(s.share(i, free))
	}
	return s
}

// Name returns the name that the option [Name] set, or "".
func (s *Striped) Name() string { return s.name }

// Acquire acquires a permit, and waits if none is free. n must be 1 or 0. A weight of 0
// is granted at once as an inert permit; a larger one is ErrTooLarge. Acquire also fails
// with the context's cause, ErrQueueFull or ErrTimeout (options MaxWaiters and MaxWait),
// ErrDraining, ErrClosed or ErrInvalid, like [Semaphore.Acquire].
func (s *Striped) Acquire(ctx context.Context, n int64) (Permit, error) {
	if n == 1 && len(s.cells) > 0 && s.monitor == nil && ctx != nil && ctx.Err() == nil {
		if c := s.home(); c.take() {
			return c.permit(), nil
		}
	}
	return s.acquire(ctx, n)
}

// TryAcquire acquires a permit if one is free in any cell. It fails with ErrFull if
// none is. Its other errors are those of Acquire.
func (s *Striped) TryAcquire(ctx context.Context, n int64) (Permit, error) {
	const op = "try"
	if n != 1 || len(s.cells) == 0 || ctx == nil || ctx.Err() != nil {
		return s.acquireTrivial(ctx, op, n)
	}
	watch := s.monitor.BeginTry(ctx, n)
	return s.conclude(ctx, op, &watch, s.tryTake(false))
}

func (s *Striped) acquire(ctx context.Context, n int64) (Permit, error) {
	const op = "acquire"
	if n != 1 || len(s.cells) == 0 || ctx == nil || ctx.Err() != nil {
		return s.acquireTrivial(ctx, op, n)
	}
	watch := s.monitor.Begin(ctx, n)
	if s.monitor == nil {
		if s.takeAnywhere() {
			return s.conclude(ctx, op, &watch, granted)
		}
	} else { // reports before it queues
		if v := s.tryTake(true); v != pending {
			return s.conclude(ctx, op, &watch, v)
		}
		watch.Queued()
		if ctx.Err() != nil { // ctx may have ended while observers ran
			return s.conclude(ctx, op, &watch, cancelled)
		}
	}
	v := s.wait(ctx)
	if v == cancelled && s.gathered.Load() {
		s.queue.lock()
		s.unlock(wakes{}) // park may have returned a permit that paid the last debt
	}
	return s.conclude(ctx, op, &watch, v)
}

// conclude converts a final status into a permit or an error, and reports it.
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

// tryTake takes a permit without waiting. It returns granted or a rejection. If mayWait,
// it returns pending instead of full for a caller that may join the queue.
//
// If permits move between the cells and the queue during the search, it searches again,
// so that no permit in transit counts as held.
func (s *Striped) tryTake(mayWait bool) status {
	for {
		moves := s.moves.Load()
		if s.takeAnywhere() {
			return granted
		}
		s.queue.mu.Lock()
		moved, v := s.moves.Load() != moves, pending
		if !moved {
			v = s.queue.decideLocked(1, mayWait)
		}
		s.queue.mu.Unlock()
		if !moved {
			return v
		}
	}
}

func (s *Striped) wait(ctx context.Context) status {
	s.demand.Add(1)
	defer s.demand.Add(-1)
	if s.takeAnywhere() {
		return granted
	}
	w, v := s.queue.enter(1, ctx.Done())
	if v == pending {
		v = s.queue.park(ctx, w, s.maxWait)
	}
	return v
}

// A stripedOwner is a Striped with the methods that its issuer calls.
type stripedOwner Striped

// TakeBack implements [Owner].
func (s *stripedOwner) TakeBack(int64) { (*Striped)(s).home().Release() }

// Name returns the name of the Striped, for reports.
func (s *stripedOwner) Name() string { return s.name }

// takeAnywhere searches all cells, starting with the home cell, and then the permits in
// the queue that are not owed to a waiter.
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

// Release implements [Lease]. It returns a permit to the cell, or to the queue while a
// caller waits or the permits are gathered.
func (c *cell) Release() {
	if c.owner.demand.Load() > 0 {
		c.owner.give()
		return
	}
	c.put()
}

// put adds a permit to the cell, and reads demand again. Since Release read it, a caller
// that saw the cell empty may have begun to wait, or the cell may have been shut. If so,
// put removes a permit from the cell again.
func (c *cell) put() {
	c.free.Add(1)
	if c.owner.demand.Load() > 0 {
		c.recall()
	}
}

// recall moves a permit from the cell to the queue, unless another goroutine has taken
// it or no caller needs it any more.
func (c *cell) recall() {
	for c.owner.demand.Load() > 0 {
		n := c.free.Load()
		if n == 0 || n == shutCell {
			return
		}
		if c.free.CompareAndSwap(n, n-1) {
			c.owner.give()
			return
		}
	}
}

// give returns a permit to the queue.
func (s *Striped) give() {
	if s.queue.word.Add(1) >= slowFlag {
		s.queue.lock()
		s.unlock(s.queue.settleLocked())
	}
}

// Stats returns a snapshot. It adds up the cells one after the other, so that Free,
// InUse and Acquired are approximate under load. The rest is exact.
func (s *Striped) Stats() Stats {
	for {
		moves := s.moves.Load()
		st := s.queue.stats()
		st.Acquired = s.spareIssued.Load() + s.issuer.Issued()
		for i := range s.cells {
			c := &s.cells[i]
			st.Free += c.count()
			st.Acquired += int64(c.slot.gen.Load()+1) / 2
		}
		st.Free = min(st.Free, st.Capacity)
		st.InUse = st.Capacity + st.Debt - st.Free
		if moves&1 == 0 && s.moves.Load() == moves {
			return st
		}
	}
}

func (s *Striped) home() *cell { return &s.cells[s.homeIndex()] }

func (s *Striped) homeIndex() uint64 { return stackHint(s.shift) }

func (c *cell) take() bool {
	free := c.free.Load()
	return free > 0 && c.free.CompareAndSwap(free, free-1)
}

// permit returns a permit that is released to this cell.
func (c *cell) permit() Permit {
	h := &c.slot
	if gen := h.gen.Load(); gen&1 == 0 && h.gen.CompareAndSwap(gen, gen+1) {
		return Permit{h, gen + 1, 1}
	}
	h, ok := c.owner.spareHandles.Get().(*handle)
	if !ok {
		h = &handle{kind: spareCellHandle}
		h.issuer.Store(&c.owner.issuer)
	}
	h.lease = c
	c.owner.spareIssued.Add(1)
	return Permit{h, h.gen.Add(1), 1}
}

// acquireTrivial handles calls that are decided without a search for a permit.
func (s *Striped) acquireTrivial(ctx context.Context, op string, n int64) (Permit, error) {
	var err error
	switch {
	case len(s.cells) == 0:
		s.mustBeNew(op)
	case ctx == nil:
		err = s.fault(op, n, ErrInvalid, nilContext)
	case n < 0:
		err = s.fault(op, n, ErrInvalid, "negative weight")
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default: // n is 0, or more than 1
		switch v := s.queue.checkOpen(); {
		case v != granted:
			err = s.fault(op, n, sentinelOf(v), "")
		case n == 0:
			return Permit{}, nil
		default:
			s.queue.countRejected()
			err = s.fault(op, n, ErrTooLarge, "the permits of a Striped are of weight 1")
		}
	}
	watch := s.monitor.BeginTry(ctx, n)
	return Permit{}, watch.Failed(err)
}

func (s *Striped) fault(op string, n int64, err error, detail string) error {
	st := s.Stats()
	fault := &Error{Op: op, Name: s.name, Weight: n, Capacity: st.Capacity, InUse: st.InUse, Waiters: st.Waiters, Err: err, Detail: detail}
	if err == ErrTooLarge {
		fault.Advice = "acquire permits of weight 1, or use a Semaphore"
	}
	return fault
}

// mustBeNew panics on a Striped that NewStriped did not create. Such a Striped has no
// cells.
func (s *Striped) mustBeNew(op string) {
	if len(s.cells) == 0 {
		panic("sema: " + op + " on a zero Striped; create it with sema.NewStriped")
	}
}
