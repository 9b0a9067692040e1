package sema

import (
	"runtime"
	"time"
)

// Leased is [Wait.Granted] for a gate whose permits stand for leases of their own: it
// makes the permit of a lease as [NewPermit] does, and reports it. If an observer
// panics the permit is released.
func (w *Wait) Leased(l Lease) Permit {
	if w.m == nil {
		return NewPermit(w.weight, l)
	}
	w.ended()
	p := newLeaseRecord(w, l).leased(w.weight)
	w.m.issued(p, &Event{Kind: EventAcquired, Weight: w.weight, Wait: w.waited(), Site: w.site()})
	return p
}

// newLeaseRecord returns what is known of the permit of a lease. It has a record also
// where the diagnostics want none, since the release is reported.
func newLeaseRecord(w *Wait, l Lease) *record {
	if w.more != nil && w.more.record {
		r := newRecord(w, nil)
		r.lease, r.listed = l, true
		return r
	}
	r := &record{monitor: w.m, weight: w.weight, since: time.Now(), lease: l}
	if w.more != nil {
		r.stack = w.more.stack
	}
	return r
}

// leased makes the one permit of the record of a lease.
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
	runtime.KeepAlive(h) // or it might be collected, and taken for leaked, before
}

// parts makes the permits of the two leases that the lease of h was split into.
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
