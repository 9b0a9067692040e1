package sema

import (
	"fmt"
	"runtime"
	"time"
)

// A Lease backs the permits of a Gate that is not a semaphore of this package.
// It may also implement any of
//
//	Split(n int64) (first, rest Lease, err error) // for Permit.Split; must change nothing on error
//	Lost() <-chan struct{}                        // for Permit.Lost
//	Err() error                                   // for Permit.Err
//	Name() string                                 // for Permit.String
//	Slots() []int64                               // for Permit.Slots
type Lease interface {
	// Release returns what the permit holds. The first Permit.Release calls it; later
	// ones do not. It must not block.
	Release()
}

// NewPermit returns a permit of a user's own Gate. The first Release of it or of any
// copy calls lease.Release. NewPermit panics if weight is negative or lease is nil.
func NewPermit(weight int64, lease Lease) Permit {
	if weight < 0 || lease == nil {
		panic(fmt.Sprintf("sema: NewPermit(%d, %v): want a weight ≥ 0 and a lease", weight, lease))
	}
	h := &handle{kind: leasedHandle, lease: lease}
	h.gen.Store(leaseHeld)
	return Permit{h, leaseHeld, weight}
}

// Lease returns the lease passed to [NewPermit] or [Wait.Leased]. It is nil for other
// permits.
func (p Permit) Lease() Lease {
	if p.handle == nil || p.handle.kind != leasedHandle {
		return nil
	}
	return p.handle.lease
}

// Leased reports a grant like [Wait.Granted], for a gate whose permits stand for
// leases of their own. It returns a permit of l as [NewPermit] does. If an observer
// panics, the permit is released.
func (w *Wait) Leased(l Lease) Permit {
	if w.m == nil {
		return NewPermit(w.weight, l)
	}
	w.endWait()
	p := newLeaseRecord(w, l).leased(w.weight)
	w.issued(p)
	return p
}

// The generation of a leased handle is the state of its one permit.
const (
	leaseHeld            = 1
	leaseEnded           = 2
	leaseSplitting       = 3 // Lease.Split is running
	leaseReleasedInSplit = 4 // leaseSplitting, and the permit was released meanwhile
)

// newLeaseRecord returns the record of the permit of a lease. An observed permit has
// one even if it is not diagnosed, because its release is reported.
func newLeaseRecord(w *Wait, l Lease) *record {
	if w.trace != nil && w.trace.record {
		r := newRecord(w, nil)
		r.lease, r.listed = l, true
		return r
	}
	r := &record{monitor: w.m, weight: w.weight, since: time.Now(), lease: l}
	if w.trace != nil {
		r.stack = w.trace.stack
	}
	return r
}

// leased returns the one permit of the record of a lease.
func (r *record) leased(weight int64) Permit {
	h := &handle{kind: leasedHandle, lease: r.lease, rec: r}
	h.gen.Store(leaseHeld)
	if r.listed {
		r.watch(h)
	}
	return Permit{h, leaseHeld, weight}
}

// endLease releases the lease of a permit that has ended.
func (h *handle) endLease(weight int64) {
	if h.rec == nil {
		h.lease.Release()
		return
	}
	h.rec.released(weight)
	runtime.KeepAlive(h) // else the handle could be collected before this and reported as leaked
}

// releaseDuringSplit handles a Release that found the permit not held. If the lease is
// being split and that fails, splitLease releases it.
func (h *handle) releaseDuringSplit() {
	if h.kind == leasedHandle {
		h.gen.CompareAndSwap(leaseSplitting, leaseReleasedInSplit)
	}
}

// splitLease splits the lease. If that fails and the permit was released meanwhile, it
// releases the lease.
func (p Permit) splitLease(n int64) (first, rest Permit, err error) {
	h := p.handle
	splitter, ok := h.lease.(interface {
		Split(n int64) (first, rest Lease, err error)
	})
	if !ok {
		return Permit{}, Permit{}, &Error{Op: "split", Err: ErrInvalid, Detail: "the lease of the permit cannot be split"}
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

// parts returns the permits of the two leases that the lease of h was split into.
func (h *handle) parts(a Lease, n int64, b Lease, m int64) (first, rest Permit) {
	r := h.rec
	if r == nil {
		return NewPermit(n, a), NewPermit(m, b)
	}
	acquired := recorded.pendingOf(r)
	r.end()
	runtime.KeepAlive(h)
	one, other := *r, *r
	one.weight, one.lease = n, a
	other.weight, other.lease = m, b
	first, rest = one.leased(n), other.leased(m)
	for wanted, o := range acquired { // under both
		recorded.addPending(&one, wanted, o)
		recorded.addPending(&other, wanted, o)
	}
	return first, rest
}
