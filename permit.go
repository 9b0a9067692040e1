package sema

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// A Permit is the right to use what a semaphore guards. It is a small value to
// copy, store and pass on; the copies are one permit, and the first Release of
// any of them counts. The zero Permit is inert: every method does nothing.
type Permit struct {
	handle *handle
	gen    uint64
	weight int64
}

// A handle is what the copies of a permit share. The permit is held while the
// handle's generation is the permit's; whoever moves the generation on has
// ended it, and only then may read what is not fixed in a handle that is
// reused. 64 bits of generation do not wrap.
type handle struct {
	gen   atomic.Uint64 // odd while a permit is out on it
	kind  handleKind    // fixed
	sem   *Semaphore    // fixed; nil for leased handles
	lease Lease         // fixed, but for spare cell handles
	rec   *record       // fixed; for recorded handles
	since int64         // for pooled handles of an observed semaphore
}

type handleKind uint8

const (
	slotHandle      handleKind = iota // lives in its semaphore, reused at once
	pooledHandle                      // from its semaphore's pool of spares
	recordedHandle                    // made for one permit, known to the diagnostics
	leasedHandle                      // made by NewPermit for one permit
	cellHandle                        // lives in a cell of a Striped, reused at once
	spareCellHandle                   // from the pool of a Striped
)

// A Lease backs the permits of a Gate that is not a semaphore of this package.
// It may also have any of
//
//	Split(n int64) (first, rest Lease, err error) // for Permit.Split; must change nothing on error
//	Lost() <-chan struct{}                        // for Permit.Lost
//	Err() error                                   // for Permit.Err
type Lease interface {
	// Release is called once, when the permit is released. It must not block.
	Release()
}

// NewPermit makes a permit of your own Gate: releasing it, or any copy of it,
// for the first time calls lease.Release. It panics on a negative weight or a
// nil lease.
func NewPermit(weight int64, lease Lease) Permit {
	if weight < 0 || lease == nil {
		panic(fmt.Sprintf("sema: NewPermit(%d, %v): want a weight ≥ 0 and a lease", weight, lease))
	}
	h := &handle{kind: leasedHandle, lease: lease}
	h.gen.Store(leaseHeld)
	return Permit{h, leaseHeld, weight}
}

// Release gives the permit back. Only the first call among all copies counts;
// it may come from any goroutine. It does not block or panic, unless an
// [Observer] or [Lease] of yours does.
func (p Permit) Release() {
	h := p.handle
	if h == nil {
		return
	}
	if !h.gen.CompareAndSwap(p.gen, p.gen+1) {
		h.releaseDuringSplit()
		return
	}
	if h.kind == slotHandle {
		h.sem.core.give(uint64(p.weight))
		return
	}
	h.release(p.weight)
}

func (h *handle) release(weight int64) {
	switch h.kind {
	case leasedHandle, cellHandle:
		h.lease.Release()
	case spareCellHandle:
		c := h.lease.(*cell)
		c.owner.spares.Put(h)
		c.Release()
	case recordedHandle:
		h.rec.released(weight)
		runtime.KeepAlive(h) // or it might be collected, and taken for leaked, before
	case pooledHandle:
		s, since := h.sem, h.since
		s.spares.Put(h)
		s.giveBack(weight, since)
	}
}

// Weight is how many permits this one stands for.
func (p Permit) Weight() int64 { return p.weight }

// Held reports whether the permit has not been released, split or forgotten.
func (p Permit) Held() bool { return p.handle != nil && p.handle.gen.Load() == p.gen }

// Split makes two permits of one: the first of weight n, the second of the
// rest. The original and its copies become inert. Nothing changes on error:
// when n is not between 1 and Weight()-1, the permit is not held, or its Gate
// cannot split.
func (p Permit) Split(n int64) (first, rest Permit, err error) {
	if n <= 0 || n >= p.weight {
		return Permit{}, Permit{}, &Error{Op: "split", Err: ErrInvalid,
			Detail: fmt.Sprintf("%d off a permit of %d: want 1 to %d", n, p.weight, p.weight-1)}
	}
	if p.Lease() != nil {
		return p.splitLease(n)
	}
	h := p.handle
	if !h.gen.CompareAndSwap(p.gen, p.gen+1) {
		return Permit{}, Permit{}, errNotHeld("split")
	}
	switch h.kind {
	case recordedHandle:
		first, rest = h.rec.split(n, p.weight-n)
		runtime.KeepAlive(h)
	case pooledHandle:
		s, since := h.sem, h.since
		first, rest = s.pooledPermit(n, since), s.pooledPermit(p.weight-n, since)
		s.spares.Put(h)
	default:
		first, rest = h.sem.permit(n), h.sem.permit(p.weight-n)
	}
	return first, rest, nil
}

// A leased handle serves one permit, so its generation has room for what a
// reused one cannot say.
const (
	leaseHeld      = 1
	leaseEnded     = 2
	leaseSplitting = 3 // the lease is being asked to split
	leaseUnwanted  = 4 // and meanwhile somebody released
)

// splitLease asks the lease. A Release that comes meanwhile is remembered: if
// the lease refuses to split, it is made up for.
func (p Permit) splitLease(n int64) (first, rest Permit, err error) {
	h := p.handle
	splitter, ok := h.lease.(interface {
		Split(n int64) (first, rest Lease, err error)
	})
	if !ok {
		return Permit{}, Permit{}, &Error{Op: "split", Err: ErrInvalid, Detail: "a permit of this kind cannot be split"}
	}
	if !h.gen.CompareAndSwap(leaseHeld, leaseSplitting) {
		return Permit{}, Permit{}, errNotHeld("split")
	}
	done := false
	defer func() {
		if !done && !h.gen.CompareAndSwap(leaseSplitting, leaseHeld) {
			h.gen.Store(leaseEnded)
			h.lease.Release()
		}
	}()
	a, b, err := splitter.Split(n)
	if err != nil {
		return Permit{}, Permit{}, err
	}
	done = true
	h.gen.Store(leaseEnded)
	return NewPermit(n, a), NewPermit(p.weight-n, b), nil
}

// releaseDuringSplit is a Release that found the permit not held.
func (h *handle) releaseDuringSplit() {
	if h.kind == leasedHandle {
		h.gen.CompareAndSwap(leaseSplitting, leaseUnwanted)
	}
}

func errNotHeld(op string) error {
	return &Error{Op: op, Err: ErrInvalid, Detail: "the permit is not held (released, split or forgotten already)"}
}

// Lease is what the permit was made from by [NewPermit], nil for others.
func (p Permit) Lease() Lease {
	if p.handle == nil || p.handle.kind != leasedHandle {
		return nil
	}
	return p.handle.lease
}

// A Backing is what the permits of a semaphore rest on, see [Backed].
type Backing interface {
	Lost() <-chan struct{} // for Permit.Lost
	Err() error            // for Permit.Err
}

// Backing is what the permit's semaphore was made with, by [Backed]; nil for
// others.
func (p Permit) Backing() Backing {
	if p.handle == nil || p.handle.sem == nil {
		return nil
	}
	return p.handle.sem.backing
}

// Lost is closed when the lease behind the permit is gone before its release.
// It is nil, and so never ready in a select, for permits that cannot be lost.
func (p Permit) Lost() <-chan struct{} {
	if b := p.Backing(); b != nil {
		return b.Lost()
	}
	if l, ok := p.Lease().(interface{ Lost() <-chan struct{} }); ok {
		return l.Lost()
	}
	return nil
}

// Err is nil, or wraps [ErrLost] once the lease behind the permit is gone. The
// clock decides at the moment of the call. It is nil for permits that cannot
// be lost.
func (p Permit) Err() error {
	if b := p.Backing(); b != nil {
		if !p.Held() {
			return nil
		}
		return b.Err()
	}
	if l, ok := p.Lease().(interface{ Err() error }); ok {
		return l.Err()
	}
	return nil
}
