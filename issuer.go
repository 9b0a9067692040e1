package sema

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// An Owner is a gate that an [Issuer] makes permits for.
//
// It may also implement [Backing], for permits that can be lost, and a method
// Name() string, which errors and reports print.
type Owner interface {
	// TakeBack returns n permits to the gate. It is called once for each permit
	// that was issued, or for each part of one that was split. It must not block.
	TakeBack(n int64)
}

// An Issuer makes the permits of a [Gate] of your own without allocating: a
// pair of Permit and Release costs about as much as that of a [Semaphore]. Embed
// it by value, call Init once, and Permit for whatever your gate grants.
//
// Permits of one Issuer cannot be told apart by their owner. Use [NewPermit] for
// permits that stand for something of their own, such as a lease in a store.
type Issuer struct {
	owner   Owner
	monitor *Monitor // nil if permits are not observed
	core    *core    // of a Semaphore that is not observed: Release returns permits to it directly
	backing Backing  // nil if permits cannot be lost

	first handle
	slots atomic.Pointer[slotTable]

	// Permits that generations of slots do not count as they should, see issued.
	unslotted atomic.Int64 // on handles that are no slots
	parts     atomic.Int64
}

// Init makes the issuer ready. It must be called before Permit, once. Releases are
// reported to m, which may be nil.
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

// Permit returns a permit of n. Releasing it calls TakeBack(n) of the owner.
func (i *Issuer) Permit(n int64) Permit {
	h := &i.first
	if t := i.slots.Load(); t != nil {
		h = &t.slots[stackHint(t.shift)]
	}
	if gen := h.gen.Load(); gen&1 == 0 && h.gen.CompareAndSwap(gen, gen+1) {
		return Permit{h, gen + 1, n}
	}
	return i.permitBeside(n)
}

// permitSince is Permit for one that was acquired at a time since the epoch.
func (i *Issuer) permitSince(n, since int64) Permit {
	p := i.Permit(n)
	p.handle.since.Store(since)
	return p
}

// returned ends a permit that was acquired at a time since the epoch.
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

func sinceEpoch() int64 { return int64(time.Since(epoch)) }

// Permits need a handle each. To claim one from a sync.Pool and put it back costs
// as much as a semaphore (8 of 20 ns), so the handles live in the issuer: a slot is
// claimed by moving its generation from even to odd, and the release that must move
// it on anyway frees it.
//
// An issuer starts with one slot. When two permits are held at once it gets a table,
// in which a goroutine's stack address picks the slot: the same one each time, so
// that cores do not contend for the slots' cache lines.
//
// A handle fills a cache line; a test holds it.
type slotTable struct {
	slots []handle
	shift uint8 // 64 − log2 of the length
}

// permitBeside finds another handle when the preferred slot is taken: a
// neighbour, or else one from the pool.
func (i *Issuer) permitBeside(n int64) Permit {
	t := i.slots.Load()
	if t == nil {
		i.slots.CompareAndSwap(nil, i.newSlotTable())
		t = i.slots.Load()
	}
	const neighbours = 4
	first := stackHint(t.shift)
	for k := range uint64(neighbours) {
		h := &t.slots[(first+k)%uint64(len(t.slots))]
		if gen := h.gen.Load(); gen&1 == 0 && h.gen.CompareAndSwap(gen, gen+1) {
			return Permit{h, gen + 1, n}
		}
	}
	return i.overflow(n)
}

// overflowHandles are the handles of permits for which there is no slot, of all
// issuers: one that has many classes would keep a pool for each.
var overflowHandles = sync.Pool{New: func() any { return &handle{kind: overflowHandle} }}

func (i *Issuer) overflow(n int64) Permit {
	h := overflowHandles.Get().(*handle)
	h.issuer.Store(i)
	i.unslotted.Add(1)
	return Permit{h, h.gen.Add(1), n}
}

// newSlotTable has some slots per processor, so that two running goroutines seldom
// want the same, but not many more than a semaphore can have permits held. An owner is
// not asked: it may hold a lock while it issues a permit.
func (i *Issuer) newSlotTable() *slotTable {
	want, most := 8*uint64(runtime.GOMAXPROCS(0)), uint64(64)
	if s, ok := i.owner.(*semaphoreOwner); ok {
		s.core.mu.Lock()
		most = min(256, 2*s.core.capacity)
		s.core.mu.Unlock()
	}
	log := bits.Len64(max(2, min(want, most)) - 1)
	t := &slotTable{slots: make([]handle, 1<<log), shift: uint8(64 - log)}
	for k := range t.slots {
		t.slots[k].init(i)
	}
	return t
}

// issued returns how many permits were ever issued, at no cost when they are: a
// generation grows by two for each. The parts of a split count as the permit they
// were.
func (i *Issuer) issued() int64 {
	n := (i.first.gen.Load() + 1) / 2
	if t := i.slots.Load(); t != nil {
		for k := range t.slots {
			n += (t.slots[k].gen.Load() + 1) / 2
		}
	}
	return int64(n) + i.unslotted.Load() - i.parts.Load()
}

// stackHint is a number below 2^(64−shift) by where the caller's stack is: for
// a goroutine mostly the same, for two mostly not. Nothing depends on either.
func stackHint(shift uint8) uint64 {
	var here byte
	const stackSize, golden = 2048, 0x9e3779b97f4a7c15
	return uint64(uintptr(unsafe.Pointer(&here))/stackSize) * golden >> shift
}
