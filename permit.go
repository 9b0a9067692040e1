package sema

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// A Permit is the right to use what a semaphore guards. It is a small value that
// may be copied, stored and passed on. All copies are the same permit: only the
// first Release of any of them has an effect. The zero Permit is inert: its
// methods do nothing.
type Permit struct {
	handle *handle
	gen    uint64
	weight int64
}

// A handle is the state that the copies of a permit share. The permit is held
// while the handle's generation equals the permit's. Only the caller that advances
// the generation has ended the permit. Only then may it use the fields of a handle
// that is reused; it may load atomic fields before, and discards them if another
// caller ended the permit. A generation of 64 bits does not wrap.
type handle struct {
	gen    atomic.Uint64          // odd while a permit is held
	kind   handleKind             // fixed
	core   *core                  // fixed; Release returns permits to it directly; nil: Release looks at kind
	issuer atomic.Pointer[Issuer] // fixed, except for overflow handles; nil for leases
	lease  Lease                  // fixed, except for spare cell handles
	rec    *record                // fixed; set for recorded handles and for observed leases
	since  atomic.Int64           // time of the acquire since epoch, for an observed issuer
}

type handleKind uint8

const (
	slotHandle      handleKind = iota // part of its issuer, reused at once
	overflowHandle                    // from the pool that all issuers share
	recordedHandle                    // allocated for one permit, recorded by the diagnostics
	leasedHandle                      // allocated by NewPermit for one permit
	cellHandle                        // part of a cell of a Striped, reused at once
	spareCellHandle                   // from the pool of a Striped
)

// Release returns the permit to its gate. Only the first call among all copies
// has an effect. Any goroutine may call it. Release does not block or panic,
// unless an [Observer], [Lease] or [Owner] of the user does.
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

// ReleaseFirst releases the permit as Release does, and reports whether this call was the
// first. It is for types that contain a permit and do more when it ends, once for all
// copies. It returns false for an inert permit.
func (p Permit) ReleaseFirst() bool {
	h := p.handle
	if h == nil {
		return false
	}
	if c := h.core; c != nil {
		if !h.gen.CompareAndSwap(p.gen, p.gen+1) {
			return false
		}
		c.give(uint64(p.weight))
		return true
	}
	return p.release()
}

func (p Permit) release() (first bool) {
	h := p.handle
	since := h.since.Load() // read before the slot can serve another permit
	if !h.gen.CompareAndSwap(p.gen, p.gen+1) {
		h.releaseDuringSplit()
		return false
	}
	switch h.kind {
	case leasedHandle:
		h.endLease(p.weight)
	case cellHandle:
		h.lease.Release()
	case spareCellHandle:
		c := h.lease.(*cell)
		c.owner.spareHandles.Put(h)
		c.Release()
	case recordedHandle:
		h.rec.released(p.weight)
		runtime.KeepAlive(h) // else the handle could be collected before this and reported as leaked
	case slotHandle:
		h.issuer.Load().returned(p.weight, p.gen, since)
	case overflowHandle:
		i := h.issuer.Load()
		overflowHandles.Put(h)
		i.returned(p.weight, p.gen, since)
	}
	return true
}

// Weight returns the weight of the permit.
func (p Permit) Weight() int64 { return p.weight }

// Held reports whether the permit is held: granted, and not yet released, split or
// forgotten.
func (p Permit) Held() bool { return p.handle != nil && p.handle.gen.Load() == p.gen }

// Slots returns the numbers of the permit, ascending, one for each unit of its weight. No
// two permits of a semaphore that are held at the same time share a number. So a number
// can stand for a device, such as one of eight GPUs. The permits of host semaphores have
// numbers, and those of fleet semaphores that are numbered. Slots returns nil for other
// permits, and if the permit is not held. It allocates the result.
func (p Permit) Slots() []int64 {
	var of any = p.Owner()
	if l := p.Lease(); l != nil {
		of = l
	}
	if numbered, ok := of.(interface{ Slots() []int64 }); ok {
		if slots := numbered.Slots(); p.Held() { // checked last: a Split may have changed the numbers
			return slots
		}
	}
	return nil
}

// Split divides the permit in two: first of weight n, rest of the remaining
// weight. The original and its copies become inert. Split fails if n is not
// between 1 and Weight()-1, if the permit is not held, or if its Gate cannot
// split. On error nothing changes.
//
// A batch that is acquired at once and split waits once, and cannot deadlock with others
// as single acquires that are held together can. A Split costs more than an acquire and a
// release that do not wait. So keep a batch whole if its parts end together:
// `go -C bench run . core --only batch`.
func (p Permit) Split(n int64) (first, rest Permit, err error) {
	if n <= 0 || n >= p.weight {
		return Permit{}, Permit{}, p.errSplit(n)
	}
	if p.Lease() != nil {
		return p.splitLease(n)
	}
	h := p.handle
	if h.kind == recordedHandle {
		if !h.gen.CompareAndSwap(p.gen, p.gen+1) {
			return Permit{}, Permit{}, errNotHeld("split")
		}
		first, rest = h.rec.split(n, p.weight-n)
		runtime.KeepAlive(h)
		return first, rest, nil
	}
	// The first part keeps the handle, with the next generation of a held permit.
	if !h.gen.CompareAndSwap(p.gen, p.gen+2) {
		return Permit{}, Permit{}, errNotHeld("split")
	}
	first = Permit{h, p.gen + 2, n}
	i, since := h.issuer.Load(), h.since.Load()
	if m := i.monitor; m != nil && !m.reportsRelease(p.gen, since) {
		since = 0
		h.since.Store(since)
	}
	other := i.splitOff(n)
	rest = other.permitSince(p.weight-n, since)
	if h.kind == slotHandle {
		i.parts.Add(1) // the generation counts first as a permit of its own
	}
	other.parts.Add(1)
	return first, rest, nil
}

// errSplit returns the error of a split that no permit of this weight allows.
func (p Permit) errSplit(n int64) error {
	detail := fmt.Sprintf("%d off a permit of %d: want 1 to %d", n, p.weight, p.weight-1)
	switch p.weight {
	case 0:
		return &Error{Op: "split", Err: ErrInvalid, Detail: "the permit is inert"}
	case 1:
		detail = "a permit of weight 1 has no parts"
	}
	return &Error{Op: "split", Name: p.gateName(), Err: ErrInvalid, Detail: detail}
}

func errNotHeld(op string) error {
	return &Error{Op: op, Err: ErrInvalid, Detail: "the permit is not held (released, split or forgotten already)"}
}

// A Backing is a resource that the permits of a semaphore depend on and that can be
// lost. See [Backed].
type Backing interface {
	Lost() <-chan struct{} // for Permit.Lost
	Err() error            // for Permit.Err
}

// Backing returns the backing of the permit. It is nil if the permit cannot be
// lost or is backed by a [Lease].
func (p Permit) Backing() Backing {
	if i := p.issuer(); i != nil {
		return i.backing
	}
	return nil
}

// Owner returns the gate whose [Issuer] issued the permit. It is nil for other
// permits, and may be nil for a permit that is no longer held.
func (p Permit) Owner() Owner {
	if i := p.issuer(); i != nil {
		return i.owner
	}
	return nil
}

// issuer returns the issuer of the permit, or nil for a lease. A handle from the
// pool may serve another issuer as soon as its permit is released. So the result is
// nil for such a handle unless the permit is held.
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

// Lost returns a channel that is closed when the lease behind the permit is lost
// before its release. The channel is nil, and so never ready in a select, for
// permits that cannot be lost.
func (p Permit) Lost() <-chan struct{} {
	if b := p.Backing(); b != nil {
		return b.Lost()
	}
	if l, ok := p.Lease().(interface{ Lost() <-chan struct{} }); ok {
		return l.Lost()
	}
	return nil
}

// Err returns an error that wraps [ErrLost] if the lease behind the permit is
// lost, and nil otherwise. Expiry is checked against the clock at the time of the
// call. Err returns nil for permits that cannot be lost.
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
