package pool

import "github.com/sema-go/sema"

// An Item is a lent item. Like a [sema.Permit] it is a small value that may be copied and
// passed on. All copies are the same item: the first Release, Discard or Keep of any of
// them ends the lending, and the copies become inert. The zero Item is inert.
//
// It has three words. Larger ones, with the value and the permit, are returned in pieces
// that the caller's copy reads as a whole, for which the processor waits: 48 instead of
// 26 ns for a pair of Get and Release.
type Item[T any] struct {
	slot *slot[T]
	gen  uint64   // the item is lent while the generation of the slot equals gen
	held *permits // nil: slot.permit is all
}

// permits are those by which an item is held. Where leaks are detected the slot must not
// refer to them, because a permit is leaked when nothing refers to it.
type permits struct {
	permit sema.Permit // that of Item.Permit
	inner  sema.Permit // of the pool's semaphore, if that is another one
}

// release releases the permits, even if an observer panics.
func (p *permits) release() {
	defer p.permit.Release()
	p.inner.Release()
}

// Value returns what Open returned. It returns the zero value once the item is no longer
// held: a use after Release fails, instead of disturbing the next holder.
func (i Item[T]) Value() T {
	if i.slot != nil {
		// The box is replaced only after the generation was advanced.
		if box := i.slot.box.Load(); i.Held() {
			return *box
		}
	}
	var zero T
	return zero
}

// Held reports whether the item is lent: not yet released, discarded or kept.
func (i Item[T]) Held() bool { return i.slot != nil && i.slot.gen.Load()&^pinned == i.gen }

// Permit returns the permit by which the item is held: that of Config.Gate or GetVia, and
// otherwise that of the pool's semaphore. If it belongs to a fleet semaphore its lease can
// be lost ([sema.Permit.Lost], [sema.Permit.Err]): then another client may use what the
// gate guards, and the caller should stop. The item is still to be released. Release the
// item and not its permit. If the item is not held, the permit is inert.
func (i Item[T]) Permit() (permit sema.Permit) {
	switch s := i.slot; {
	case i.held != nil && i.Held():
		permit = i.held.permit
	case i.held == nil && s != nil && s.pin(i.gen):
		permit = s.permit
		s.gen.Store(i.gen)
	}
	return permit
}

// Release returns the item to the pool, and then its permit, so that the next waiter finds
// the item. An item that has reached MaxLifetime, was lent before a Reset, is surplus
// after a Resize, or returns to a closed pool is closed instead.
func (i Item[T]) Release() {
	s := i.slot
	if s == nil || !s.gen.CompareAndSwap(i.gen, i.gen+nextGen) && !s.endLending(i.gen) {
		return
	}
	if permit := s.permit; i.held == nil && s.pool.push(s) {
		permit.Release()
		return
	}
	i.giveBack(false)
}

// Discard closes a broken item and returns its permit, so that the next waiter opens a new
// one.
func (i Item[T]) Discard() {
	if s := i.slot; s != nil && s.endLending(i.gen) {
		i.giveBack(true)
	}
}

// Keep takes the item out of the pool for good: it is the caller's to close. It counts as
// open until the returned permit is released, so that Size still bounds what is open.
// Release the permit after the item is closed, or at once if it is no longer to be
// counted. If the item is not held, Keep returns the zero value and an inert permit.
func (i Item[T]) Keep() (T, sema.Permit) {
	s := i.slot
	if s == nil || !s.endLending(i.gen) {
		var zero T
		return zero, sema.Permit{}
	}
	v, l := *s.box.Load(), &keptLease[T]{s, i.permits()}
	p := s.pool
	p.lock()
	p.counts.kept++
	p.counts.Keeps++
	p.unlock()
	return v, sema.NewPermit(l.permits.permit.Weight(), l)
}

// A keptLease is the lease behind the permit of an item that was kept.
type keptLease[T any] struct {
	slot    *slot[T]
	permits permits
}

// Release implements [sema.Lease].
func (l *keptLease[T]) Release() {
	defer l.permits.release()
	p := l.slot.pool
	p.lock()
	p.counts.kept--
	p.freeLocked(l.slot)
	p.serveLocked()
	p.unlock()
}

// Lost implements [sema.Permit.Lost].
func (l *keptLease[T]) Lost() <-chan struct{} { return l.permits.permit.Lost() }

// Err implements [sema.Permit.Err].
func (l *keptLease[T]) Err() error { return l.permits.permit.Err() }

// Name implements the method that [sema.Permit.String] uses.
func (l *keptLease[T]) Name() string { return l.slot.pool.name }

// lend returns the item of a slot, to a caller that holds inner, a permit of the pool's
// semaphore, and outer, which is inert if the caller passed no other gate.
func (s *slot[T]) lend(inner, outer sema.Permit) Item[T] {
	item := Item[T]{slot: s, gen: s.gen.Load()}
	switch {
	case outer.Weight() > 0:
		item.held = &permits{outer, inner}
	case s.pool.monitored:
		item.held = &permits{permit: inner}
	default:
		s.permit = inner
	}
	return item
}

// permits returns the permits of an item whose lending the caller has ended.
func (i Item[T]) permits() permits {
	if i.held != nil {
		return *i.held
	}
	return permits{permit: i.slot.permit}
}

// giveBack returns the item and its permits to the pool. An item that cannot be lent
// again is closed first. If Close or an observer panics, the rest is done nevertheless.
func (i Item[T]) giveBack(broken bool) {
	held := i.permits()
	defer held.release()
	if p := i.slot.pool; broken || !p.push(i.slot) {
		p.returned(i.slot, broken)
	}
}
