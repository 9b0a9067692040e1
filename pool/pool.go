package pool

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
)

// A Pool lends items of type T. Create it with [New]. It is safe for concurrent use.
type Pool[T any] struct {
	conf       Config[T]
	name       string
	own        *sema.Semaphore // of Size, or unlimited
	monitored  bool            // its permits are observed, and leaks may be detected
	round      time.Duration   // interval of the janitor; 0: there is none
	checkAfter int64           // CheckAfter less a round, by which the coarse clock may lag
	start      time.Time       // the coarse clock counts from here
	admits     atomic.Pointer[admission]

	_     [64]byte      // the idle stack has a cache line of its own
	word  atomic.Uint64 // see stack.go
	_     [56]byte
	now   atomic.Int64               // the coarse clock in ns, set once a round; 0 without a janitor
	table atomic.Pointer[[]*slot[T]] // all slots, by index − 1; replaced under mu

	mu          sync.Mutex // guards what follows, and the table; see lock
	free        []*slot[T] // slots without an item
	requests    requests[T]
	size        int64 // items that may be open
	closed      bool
	counts      counts
	watched     bool // the janitor runs
	stopJanitor chan struct{}
	fillAfter   int64 // coarse time before which MinIdle is not filled
	failures    uint  // Opens that failed since one succeeded
}

// Get lends an item: the one used last of those that are idle, or a new one. It waits
// until the semaphore of the pool, and its Gate if it has one, admit the caller, in order
// of arrival, and until the item is open. The first item that is released to the pool
// meanwhile ends the wait, too.
//
// Get fails as [sema.Semaphore.Acquire] does, and with the error of Open or Gate. If ctx
// ends it returns the context's cause at once. An Open that is in progress then continues,
// and its item goes to the next caller or becomes idle.
func (p *Pool[T]) Get(ctx context.Context) (Item[T], error) {
	if p.conf.Gate != nil {
		return p.GetVia(ctx, p.conf.Gate, 1)
	}
	permit, err := p.own.Acquire(ctx, 1)
	if err != nil {
		return Item[T]{}, err
	}
	s := p.popFresh()
	if s != nil && !p.monitored {
		s.permit = permit
		return Item[T]{slot: s, gen: s.gen.Load()}, nil
	}
	return p.lend(ctx, s, permit, sema.Permit{})
}

// GetVia lends an item like Get, but acquires n permits of gate in place of one of
// Config.Gate. Use it to charge a caller to its tenant or class, or to charge more for
// heavy use:
//
//	conn, err := db.GetVia(ctx, queue.Class(tenant), 1)
//
// Then [Item.Permit] is the permit of gate. The semaphore of Size is acquired after it, so
// that Size holds whatever gate admits. GetVia fails with [sema.ErrInvalid] if gate is nil
// or n is not positive.
func (p *Pool[T]) GetVia(ctx context.Context, gate sema.Gate, n int64) (Item[T], error) {
	outer, err := p.passGate(ctx, "get", gate, n, false)
	if err != nil {
		return Item[T]{}, err
	}
	lent := false
	defer func() {
		if !lent {
			outer.Release()
		}
	}()
	inner, err := p.own.Acquire(ctx, 1)
	if err != nil {
		return Item[T]{}, err
	}
	item, err := p.lend(ctx, p.popFresh(), inner, outer)
	lent = err == nil
	return item, err
}

// TryGet lends an idle item without waiting. It fails with [sema.ErrFull] if the caller
// would have to wait: for a permit, for an item that is to be opened, or for a Check. The
// Open or the Check is started in the background, so that a later TryGet finds the item.
func (p *Pool[T]) TryGet(ctx context.Context) (item Item[T], err error) {
	var outer, inner sema.Permit
	defer func() {
		if !item.Held() {
			inner.Release()
			outer.Release()
		}
	}()
	if p.conf.Gate != nil {
		if outer, err = p.passGate(ctx, "try", p.conf.Gate, 1, true); err != nil {
			return Item[T]{}, err
		}
	}
	if inner, err = p.own.TryAcquire(ctx, 1); err != nil {
		return Item[T]{}, err
	}
	s := p.popFresh()
	if s == nil {
		if s, err = p.tryFind(ctx); err != nil {
			return Item[T]{}, err
		}
	}
	return s.lend(inner, outer), nil
}

// Do runs fn with an item. It releases the item when fn returns, and discards it if fn
// panics or ends its goroutine, because the state of the item is unknown then. fn may call
// Discard or Keep itself. The context of fn is that of [sema.Permit.Context]: it ends when
// the permit is lost.
//
// Do returns the error of Get, or that of fn. If fn returns nil but the permit was lost
// meanwhile, Do returns that error.
func (p *Pool[T]) Do(ctx context.Context, fn func(ctx context.Context, item Item[T]) error) error {
	item, err := p.Get(ctx)
	if err != nil {
		return err
	}
	defer item.Discard() // has no effect after Release
	permit := item.Permit()
	if err := permit.Err(); err != nil { // lost before fn starts
		item.Release()
		return err
	}
	held, cancel := permit.Context(ctx)
	defer cancel()
	if err = fn(held, item); err == nil {
		err = permit.Err()
	}
	item.Release()
	return err
}

// popFresh returns an idle item that needs no Check, or nil if there is none or the flag
// of the stack is set. An item that needs a Check is left to the caller's next step, find.
func (p *Pool[T]) popFresh() *slot[T] {
	s := p.pop()
	if s == nil || p.fresh(s) {
		return s
	}
	p.putBack(s)
	return nil
}

// putBack makes an item idle again that was popped and needs a Check. It closes the item if
// the pool was closed meanwhile, because Close has not found it on the stack.
func (p *Pool[T]) putBack(s *slot[T]) {
	p.lock()
	retire := p.closed
	if retire {
		p.counts.closing++
	} else {
		p.pushLocked(s)
	}
	p.unlock()
	if retire {
		p.closeSlot(s)
	}
}

// fresh reports whether an idle item may be lent without a Check.
func (p *Pool[T]) fresh(s *slot[T]) bool {
	return p.conf.Check == nil || p.now.Load()-s.since < p.checkAfter
}

// lend lends the item of s, or finds one if s is nil, to a caller that holds inner and
// outer. If it finds none, or panics, it releases inner.
func (p *Pool[T]) lend(ctx context.Context, s *slot[T], inner, outer sema.Permit) (Item[T], error) {
	if s == nil {
		found := false
		defer func() {
			if !found {
				inner.Release()
			}
		}()
		var err error
		if s, err = p.find(ctx); err != nil {
			return Item[T]{}, err
		}
		found = true
	}
	return s.lend(inner, outer), nil
}

// Name returns the name that the option [sema.Name] set.
func (p *Pool[T]) Name() string { return p.name }

func (p *Pool[T]) fault(op string, err error, detail string) *sema.Error {
	st := p.own.Stats()
	return &sema.Error{Op: op, Name: p.name, Capacity: st.Capacity, InUse: st.InUse, Waiters: st.Waiters, Err: err, Detail: detail}
}
