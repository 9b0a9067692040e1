package pool

import (
	"math"
	"runtime"
	"sync/atomic"

	"github.com/sema-go/sema"
)

// A slot is a place for one open item. Slots are reused, and never removed from the table.
//
// The generation counts the lendings that have ended. The holder of an item knows the
// current one; no other copy of an item of this slot does. To end a lending is to advance
// it with a CAS: only the caller that succeeds owns the slot then. So lending advances
// nothing, and a stale copy changes nothing. A generation of 63 bits does not wrap.
type slot[T any] struct {
	pool    *Pool[T]
	gen     atomic.Uint64 // twice the number of lendings, and whether it is pinned
	expires atomic.Int64  // coarse time from which the item is not lent again; 0 after a Reset
	box     atomic.Pointer[T]
	next    atomic.Uint32 // index of the slot below it on the idle stack; 0: none
	index   uint32        // fixed; 1 is the first

	// The fields below belong to the goroutine that has popped the slot, that has ended a
	// lending, or that has pinned the slot; and to the holder of mu while the slot is on the
	// stack and the flag is set.

	since  int64       // coarse time at which the item became idle
	permit sema.Permit // by which the item is lent, unless the Item has it
}

const (
	pinned  = 1 // Item.Permit reads the slot: the lending does not end before it has done so
	nextGen = 2
)

// pin keeps a lending from being ended, until gen is stored. It returns false if the
// lending has ended.
func (s *slot[T]) pin(gen uint64) bool {
	for !s.gen.CompareAndSwap(gen, gen|pinned) {
		if s.gen.Load()&^pinned != gen {
			return false
		}
		runtime.Gosched()
	}
	return true
}

// endLending ends a lending, for the first caller only.
func (s *slot[T]) endLending(gen uint64) bool {
	for !s.gen.CompareAndSwap(gen, gen+nextGen) {
		if s.gen.Load()&^pinned != gen {
			return false
		}
		runtime.Gosched()
	}
	return true
}

// never is the expiry of items without MaxLifetime.
const never = math.MaxInt64

// Pool.word is the stack of idle items, the one used last on top, and a flag that sends
// all callers to the lock.
//
//	 63                                  25     24   23                 0
//	┌─────────────────────────────────────┬──────┬─────────────────────┐
//	│ tag                                 │ slow │ index of the top    │
//	└─────────────────────────────────────┴──────┴─────────────────────┘
//
//	tag    advanced by each change. A goroutine that stops between reading the word and
//	       its CAS fails, even if the same slot is on top again (the ABA problem), unless
//	       exactly 2^39 changes, or a multiple, were made meanwhile
//	slow   a request waits for an item, the pool is closed, more items are open than
//	       Size, or mu is held
//
// The transitions:
//
//	┌─────────┐  push, pop: CAS
//	│  quiet  │◀──────────────┐        ┌─────────────────────────────────┐
//	│ slow=0  │───────────────┘        │             flagged             │
//	│         │── lock: or in the flag ▶ every push and pop ends under   │
//	│         │◀─ unlock: new tag ─────│ mu; its holder edits the stack  │
//	└─────────┘   and no flag          └─────────────────────────────────┘
//
// While the flag is set only the holder of mu changes the word, and it changes the tag
// when it is done. So push may decide by anything that changes only under the lock, such
// as the expiry that Reset sets: if that changed after push read the word, its CAS fails.
// And no wake-up is lost: a request sets the flag before it looks for an idle item for the
// last time, so a push either was before that or ends under mu, where it serves requests.
const (
	indexMask uint64 = 1<<24 - 1
	slowFlag  uint64 = 1 << 24
	tagUnit   uint64 = 1 << 25
	maxSlots         = int64(indexMask)
)

// pop removes the slot on top of the stack. It returns nil if there is none, or if the
// flag is set.
func (p *Pool[T]) pop() *slot[T] {
	for {
		old := p.word.Load()
		top := old & indexMask
		if top == 0 || old&slowFlag != 0 {
			return nil
		}
		s := (*p.table.Load())[top-1]
		if p.word.CompareAndSwap(old, old&^indexMask+tagUnit|uint64(s.next.Load())) {
			return s
		}
	}
}

// push puts a slot on the stack as idle. It returns false, and does nothing, if the flag
// is set or the item has expired.
func (p *Pool[T]) push(s *slot[T]) bool {
	for {
		old := p.word.Load()
		now := p.now.Load()
		if old&slowFlag != 0 || s.expires.Load() <= now {
			return false
		}
		s.since = now
		if below := uint32(old & indexMask); s.next.Load() != below { // a store takes as long as a CAS
			s.next.Store(below)
		}
		if p.word.CompareAndSwap(old, old&^indexMask+tagUnit|uint64(s.index)) {
			return true
		}
	}
}

// lock locks mu and sets the flag. Until unlock no other goroutine changes the stack.
func (p *Pool[T]) lock() {
	p.mu.Lock()
	p.word.Or(slowFlag)
}

// unlock unlocks mu. The flag stays set if callers still have to use the lock.
func (p *Pool[T]) unlock() {
	w := p.word.Load() + tagUnit
	if p.requests.Len() == 0 && !p.closed && p.counts.open <= p.size {
		w &^= slowFlag
	}
	p.word.Store(w)
	p.mu.Unlock()
}

// topLocked returns the slot on top of the stack, or nil.
func (p *Pool[T]) topLocked() *slot[T] {
	top := p.word.Load() & indexMask
	if top == 0 {
		return nil
	}
	return (*p.table.Load())[top-1]
}

// popLocked removes the slot on top of the stack, or returns nil.
func (p *Pool[T]) popLocked() *slot[T] {
	s := p.topLocked()
	if s != nil {
		p.word.Store(p.word.Load()&^indexMask | uint64(s.next.Load()))
	}
	return s
}

// pushLocked puts a slot on the stack. The caller has set since.
func (p *Pool[T]) pushLocked(s *slot[T]) {
	w := p.word.Load()
	s.next.Store(uint32(w & indexMask))
	p.word.Store(w&^indexMask | uint64(s.index))
}

// idleLocked returns the number of idle items.
func (p *Pool[T]) idleLocked() (n int) {
	table := *p.table.Load()
	for top := p.word.Load() & indexMask; top != 0; n++ {
		top = uint64(table[top-1].next.Load())
	}
	return n
}

// removeLocked removes the idle items for which the function returns true, and returns
// them. The function gets the number of items above that stay, and the slot.
func (p *Pool[T]) removeLocked(remove func(above int, s *slot[T]) bool) (removed []*slot[T]) {
	var kept []*slot[T]
	for s := p.popLocked(); s != nil; s = p.popLocked() {
		if remove(len(kept), s) {
			removed = append(removed, s)
		} else {
			kept = append(kept, s)
		}
	}
	for i := len(kept) - 1; i >= 0; i-- {
		p.pushLocked(kept[i])
	}
	return removed
}

// newSlotLocked returns a slot for an item that is about to be opened, which counts as
// open from now on.
func (p *Pool[T]) newSlotLocked() *slot[T] {
	p.counts.open++
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		s.expires.Store(never)
		return s
	}
	// Readers of the table may have read the old one: its slots are in the new one, too.
	table := *p.table.Load()
	s := &slot[T]{pool: p, index: uint32(len(table) + 1)}
	s.expires.Store(never)
	table = append(table, s) // writes behind the end of what others read, or copies
	p.table.Store(&table)
	return s
}

// freeLocked frees the slot of an item that is not open any more.
func (p *Pool[T]) freeLocked(s *slot[T]) {
	s.box.Store(nil)
	s.permit = sema.Permit{}
	p.counts.open--
	p.free = append(p.free, s)
}
