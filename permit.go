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
// handle's generation is the permit's. Only the caller that moves the generation on
// has ended the permit, and may then read the fields of a handle that is reused.
// 64 bits of generation do not wrap.
type handle struct {
	gen    atomic.Uint64          // odd while a permit is held on it
	kind   handleKind             // fixed
	core   *core                  // fixed; where Release returns permits without further ado, nil otherwise
	issuer atomic.Pointer[Issuer] // fixed, but for overflow handles; nil for leases
	lease  Lease                  // fixed, but for spare cell handles
	rec    *record                // fixed; for recorded handles, and for leases that are observed
	since  atomic.Int64           // when the permit was acquired, of an observed issuer
}

type handleKind uint8

const (
	slotHandle      handleKind = iota // lives in its issuer, reused at once
	overflowHandle                    // from the pool of all issuers
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

// Release returns the permit to its gate. Only the first call among all copies
// counts; it may come from any goroutine. It does not block or panic, unless an
// [Observer], [Lease] or [Owner] of yours does.
func (p Permit) Release() {
	h := p.handle
	if h == nil {
		return
	}
	if c := h.core; c != nil {
		if h.gen.CompareAndSwap(p.gen, p.gen+1) {
			c.give(uint64(p.weight))
		}
		return
	}
	p.release()
}

func (p Permit) release() {
	h := p.handle
	since := h.since.Load() // before the slot may serve another permit
	if !h.gen.CompareAndSwap(p.gen, p.gen+1) {
		h.releaseDuringSplit()
		return
	}
	switch h.kind {
	case leasedHandle:
		h.endLease(p.weight)
	case cellHandle:
		h.lease.Release()
	case spareCellHandle:
		c := h.lease.(*cell)
		c.owner.spares.Put(h)
		c.Release()
	case recordedHandle:
		h.rec.released(p.weight)
		runtime.KeepAlive(h) // or it might be collected, and taken for leaked, before
	case slotHandle:
		h.issuer.Load().returned(p.weight, since)
	case overflowHandle:
		i := h.issuer.Load()
		overflowHandles.Put(h)
		i.returned(p.weight, since)
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
	since := h.since.Load()
	if !h.gen.CompareAndSwap(p.gen, p.gen+1) {
		return Permit{}, Permit{}, errNotHeld("split")
	}
	if h.kind == recordedHandle {
		first, rest = h.rec.split(n, p.weight-n)
		runtime.KeepAlive(h)
		return first, rest, nil
	}
	i := h.issuer.Load()
	if h.kind == overflowHandle {
		overflowHandles.Put(h)
	}
	i.parts.Add(2)
	return i.permitSince(n, since), i.permitSince(p.weight-n, since), nil
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
// the lease fails to split, it is made up for.
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
			h.endLease(p.weight)
		}
	}()
	a, b, err := splitter.Split(n)
	if err != nil {
		return Permit{}, Permit{}, err
	}
	done = true
	h.gen.Store(leaseEnded)
	first, rest = h.parts(a, n, b, p.weight-n)
	return first, rest, nil
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

// Backing returns what the permit rests on, nil if it cannot be lost.
func (p Permit) Backing() Backing {
	if i := p.issuer(); i != nil {
		return i.backing
	}
	return nil
}

// Owner returns the gate whose [Issuer] made the permit, nil for others and for
// permits that are no longer held.
func (p Permit) Owner() Owner {
	if i := p.issuer(); i != nil {
		return i.owner
	}
	return nil
}

// issuer returns what made the permit. The handle of a permit from the pool may
// serve another issuer as soon as the permit is released, so that it is nil then.
func (p Permit) issuer() *Issuer {
	if p.handle == nil {
		return nil
	}
	i := p.handle.issuer.Load()
	if p.handle.kind == overflowHandle && !p.Held() {
		return nil
	}
	return i
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
