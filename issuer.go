package sema

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/sema-go/sema/internal/monotonic"
)

// An Owner is a gate for which an [Issuer] issues permits.
//
// It may also implement [Backing], for permits that can be lost, and a method
// Name() string, whose result errors and reports print. An owner of a single permit,
// with an Issuer of its own, may also implement
//
//	Slots() []int64        // for Permit.Slots
//	Split(n int64) *Issuer // for Permit.Split: keeps weight n, and returns the Issuer of the rest
type Owner interface {
	// TakeBack returns n permits to the gate. It is called once for each permit
	// that was issued, or once for each part of a permit that was split. It must not
	// block.
	TakeBack(n int64)
}

// An Issuer issues the permits of a user's own [Gate] without allocating: a pair of
// Permit and Release costs about as much as that of a [Semaphore]. Embed it by value,
// call Init once, and call Permit for each grant.
//
// The owner cannot distinguish the permits of one Issuer. Use [NewPermit] for permits
// that stand for something of their own, such as a lease in a store.
type Issuer struct {
	owner   Owner
	monitor *Monitor // nil: permits are not observed
	core    *core    // of a Semaphore that is not observed; Release returns permits to it directly; nil: through owner
	backing Backing  // nil: permits cannot be lost

	first handle
	slots atomic.Pointer[slotTable]

	// Corrections to the number of permits that the generations of the slots yield;
	// see Issued.
	unslotted atomic.Int64 // permits on handles other than slots
	parts     atomic.Int64 // permits that result from a split
}

// Init prepares the issuer. It must be called once, before Permit. Releases are
// reported to m, which may be nil. Init panics if owner is nil.
func (i *Issuer) Init(owner Owner, m *Monitor) {
	if owner == nil {
		panic("sema: Issuer.Init(nil): want the gate that permits return to")
	}
	i.owner, i.monitor = owner, m
	i.backing, _ = owner.(Backing)
	if s, ok := owner.(*semaphoreOwner); ok && m == nil {
		i.core = &s.core
	}
	i.first.init(i)
}

func (h *handle) init(i *Issuer) {
	h.issuer.Store(i)
	h.core = i.core
}

// Permit returns a permit of weight n. Its release calls the owner's TakeBack(n).
func (i *Issuer) Permit(n int64) Permit {
	h := &i.first
	if t := i.slots.Load(); t != nil {
		h = &t.slots[stackHint(t.shift)]
	}
	if gen := h.gen.Load(); gen&1 == 0 && h.gen.CompareAndSwap(gen, gen+1) {
		return Permit{h, gen + 1, n}
	}
	return i.permitSlow(n)
}

// permitSince returns a permit of weight n that was acquired at since, counted from
// epoch.
func (i *Issuer) permitSince(n, since int64) Permit {
	p := i.Permit(n)
	p.handle.since.Store(since)
	return p
}

// splitOff returns the issuer of the second part of a permit that is split after weight n.
// It is i itself, unless the owner distinguishes the parts.
func (i *Issuer) splitOff(n int64) *Issuer {
	if o, ok := i.owner.(interface{ Split(n int64) *Issuer }); ok {
		return o.Split(n)
	}
	return i
}

// returned returns a permit to the owner. since is the time of its acquire, counted
// from epoch.
func (i *Issuer) returned(n, since int64) {
	if i == nil {
		panic("sema: Release of a permit of an Issuer without Init")
	}
	if i.monitor != nil {
		i.monitor.takeBack(i, n, since)
		return
	}
	i.owner.TakeBack(n)
}

func sinceEpoch() int64 { return int64(monotonic.Since()) }

// A slotTable contains handles of permits. Claiming a handle from a sync.Pool and
// returning it costs as much as a semaphore (8 of 20 ns), so the handles are part of
// the issuer. A permit claims a slot by advancing the slot's generation from even to
// odd. The release has to advance the generation anyway, which frees the slot.
//
// An issuer starts with one slot. When two permits are held at once it gets a table,
// in which the stack address of a goroutine selects the slot. A goroutine mostly gets
// the same slot each time, so that cores do not contend for the cache lines of slots.
// A goroutine that holds several permits finds their slots by the cursor. An issuer
// that still runs out of slots gets a larger table; the permits in the old one stay
// there until they are released.
//
// A handle fills a cache line; a test checks that.
type slotTable struct {
	slots  []handle
	shift  uint8         // 64 − log2 of the length
	cursor atomic.Uint64 // where the search for a free slot goes on
	old    *slotTable    // the smaller table that this one replaced; nil for the first
}

// claim returns a held permit on the slot of index k, modulo the length of the table.
func (t *slotTable) claim(k uint64, n int64) (p Permit, claimed bool) {
	h := &t.slots[k%uint64(len(t.slots))]
	gen := h.gen.Load()
	if gen&1 == 0 && h.gen.CompareAndSwap(gen, gen+1) {
		return Permit{h, gen + 1, n}, true
	}
	return Permit{}, false
}

// permitSlow finds another handle when the preferred slot is in use: a slot near the
// cursor, or else a handle from the pool.
func (i *Issuer) permitSlow(n int64) Permit {
	t := i.slots.Load()
	if t == nil {
		i.slots.CompareAndSwap(nil, i.newSlotTable(nil))
		t = i.slots.Load()
	}
	if p, claimed := t.claim(stackHint(t.shift), n); claimed {
		return p
	}
	const tries = 8
	start := t.cursor.Load()
	for k := start; k < start+tries; k++ {
		if p, claimed := t.claim(k, n); claimed {
			t.cursor.Store(k + 1)
			return p
		}
	}
	t.cursor.Store(start + tries)
	return i.overflow(n, t)
}

// overflowHandles are the handles of permits for which there is no slot. All issuers
// share the pool: a gate with many classes would otherwise keep a pool for each.
var overflowHandles = sync.Pool{New: func() any { return &handle{kind: overflowHandle} }}

// growAfter is the number of permits without a slot after which an issuer gets a larger
// table. Permits that are held for long, such as those of connections, cost little
// without one.
const growAfter = 256

// overflow returns a permit on a handle from the pool, because t has no free slot.
func (i *Issuer) overflow(n int64, t *slotTable) Permit {
	if i.unslotted.Add(1)%growAfter == 0 {
		if larger := i.newSlotTable(t); larger != nil {
			i.slots.CompareAndSwap(t, larger)
		}
	}
	h := overflowHandles.Get().(*handle)
	h.issuer.Store(i)
	return Permit{h, h.gen.Add(1), n}
}

// newSlotTable returns a table with 8 slots per processor, so that two running
// goroutines seldom select the same one; or one that is four times as large as old. A
// semaphore gets at most about twice as many slots as its capacity. The result is nil if
// old cannot be exceeded. newSlotTable calls no method of the owner, which may hold a
// lock while it issues a permit.
func (i *Issuer) newSlotTable(old *slotTable) *slotTable {
	want, most := 8*uint64(runtime.GOMAXPROCS(0)), uint64(64)
	if s, ok := i.owner.(*semaphoreOwner); ok {
		s.core.mu.Lock()
		most = min(256, 2*s.core.capacity)
		s.core.mu.Unlock()
	}
	if old != nil {
		want = 4 * uint64(len(old.slots))
	}
	log := bits.Len64(max(2, min(want, most)) - 1)
	if old != nil && 1<<log <= len(old.slots) {
		return nil
	}
	t := &slotTable{slots: make([]handle, 1<<log), shift: uint8(64 - log), old: old}
	for k := range t.slots {
		t.slots[k].init(i)
	}
	return t
}

// Issued returns the number of permits ever issued, for [Counts].Acquired. Issuing costs
// nothing extra for it: a generation grows by two for each permit. The parts of a split
// count as the one permit they were.
func (i *Issuer) Issued() int64 {
	n := (i.first.gen.Load() + 1) / 2
	for t := i.slots.Load(); t != nil; t = t.old {
		for k := range t.slots {
			n += (t.slots[k].gen.Load() + 1) / 2
		}
	}
	return int64(n) + i.unslotted.Load() - i.parts.Load()
}

// stackHint returns a number below 2^(64−shift) derived from the address of the
// caller's stack. It is mostly the same for one goroutine and mostly different for two.
// Correctness depends on neither.
func stackHint(shift uint8) uint64 {
	var here byte
	const stackSize, golden = 2048, 0x9e3779b97f4a7c15
	return uint64(uintptr(unsafe.Pointer(&here))/stackSize) * golden >> shift
}
