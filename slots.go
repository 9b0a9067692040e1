package sema

import (
	"math/bits"
	"runtime"
	"unsafe"
)

// Permits of a semaphore need a handle each. To claim one from a sync.Pool and
// put it back costs as much as the semaphore itself (8 of 20 ns), so the
// handles live in the semaphore: a slot is claimed by moving its generation
// from even to odd, and the release that must move it on anyway frees it.
//
// A semaphore starts with one slot. When two permits are out at once it gets a
// table, in which a goroutine's stack address picks the slot: the same one
// each time, so that cores do not fight over the slots' cache lines.
type slotTable struct {
	slots []slot
	shift uint8 // 64 − log2 of the length
}

// A slot fills a cache line; a test holds it.
type slot struct {
	handle
	_ [8]byte
}

// permit makes a permit of n for somebody who took n from the core.
func (s *Semaphore) permit(n int64) Permit {
	h := &s.ownSlot
	if t := s.slots.Load(); t != nil {
		h = &t.slots[stackHint(t.shift)].handle
	}
	if gen := h.gen.Load(); gen&1 == 0 && h.gen.CompareAndSwap(gen, gen+1) {
		return Permit{h, gen + 1, n}
	}
	return s.permitBeside(n)
}

// permitBeside finds another handle when the preferred slot is taken: a
// neighbour, or else one from the pool.
func (s *Semaphore) permitBeside(n int64) Permit {
	t := s.slots.Load()
	if t == nil {
		s.slots.CompareAndSwap(nil, s.newSlotTable())
		t = s.slots.Load()
	}
	const neighbours = 4
	first := stackHint(t.shift)
	for i := range uint64(neighbours) {
		h := &t.slots[(first+i)%uint64(len(t.slots))].handle
		if gen := h.gen.Load(); gen&1 == 0 && h.gen.CompareAndSwap(gen, gen+1) {
			return Permit{h, gen + 1, n}
		}
	}
	return s.pooledPermit(n, 0)
}

func (s *Semaphore) pooledPermit(n, since int64) Permit {
	h, ok := s.spares.Get().(*handle)
	if !ok {
		h = &handle{kind: pooledHandle, sem: s}
	}
	h.since = since
	return Permit{h, h.gen.Add(1), n}
}

// newSlotTable has some slots per processor, so that two running goroutines
// seldom want the same, but not many more than there can be permits out.
func (s *Semaphore) newSlotTable() *slotTable {
	s.core.mu.Lock()
	capacity := s.core.capacity
	s.core.mu.Unlock()
	want := max(2, min(8*uint64(runtime.GOMAXPROCS(0)), 2*capacity, 256))
	log := bits.Len64(want - 1)
	t := &slotTable{slots: make([]slot, 1<<log), shift: uint8(64 - log)}
	for i := range t.slots {
		t.slots[i].sem = s
	}
	return t
}

// stackHint is a number below 2^(64−shift) by where the caller's stack is: for
// a goroutine mostly the same, for two mostly not. Nothing depends on either.
func stackHint(shift uint8) uint64 {
	var here byte
	const stackSize, golden = 2048, 0x9e3779b97f4a7c15
	return uint64(uintptr(unsafe.Pointer(&here))/stackSize) * golden >> shift
}
