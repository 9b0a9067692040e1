package host

import "context"

// An owner decides which process holds a slot. A claim swaps it from freeSlot, which needs
// no system call.
//
// It names a place and the incarnation of the place, a number that no earlier process
// at that place had. It counts only while that process lives: the kernel drops the lock of
// a place when its process ends, however it ends. So a process that is killed at any
// moment either holds a slot, which is then free, or does not. A scan swaps the owners
// that have ended to freeSlot. It cannot free a slot of a live one: its swap fails if the
// owner has changed.
//
// An owner may instead name the slot's own lock (lockedPlace): the slot is held as long as
// any process has that lock. Permits that a command inherited are such, and those of a
// process that has no place. The incarnation of such an owner is unique to a claim.
//
//	bits 0–12   place, or lockedPlace
//	bits 13–47  incarnation; 0: the slot is free
//	bits 48–63  ownerTag, by which content that is lost or overwritten is recognised
type owner uint64

const (
	ownerTag        = 0x5e3a << 48
	placeBits       = 13
	incarnationMask = 1<<(48-placeBits) - 1
	lockedPlace     = maxPlaces

	freeSlot owner = ownerTag
)

func newOwner(place int, incarnation uint64) owner {
	return ownerTag | owner(incarnation&incarnationMask)<<placeBits | owner(place)
}

// valid reports whether this package can have written o.
func (o owner) valid() bool { return o>>48 == ownerTag>>48 && o.place() <= lockedPlace }

func (o owner) place() int { return int(o & (1<<placeBits - 1)) }

func (o owner) incarnation() uint64 { return uint64(o>>placeBits) & incarnationMask }

func (o owner) locked() bool { return o.place() == lockedPlace }

// nextIncarnation returns a number for a place, or for an owner that names a lock.
func (f *file) nextIncarnation() uint64 {
	for {
		if n := f.head.incarnations.Add(1) & incarnationMask; n != 0 {
			return n
		}
	}
}

// addSlots makes the slots from up to to usable, and reserves disk space for their owners.
func (f *file) addSlots(from, to int64) error {
	if from >= to {
		return nil
	}
	if err := reserve(f.fd, ownersAt+from*ownerSize, (to-from)*ownerSize); err != nil {
		return openError(f.name, err, "no room for "+f.path, "free space on that filesystem")
	}
	for slot := from; slot < to; slot++ {
		f.owners[slot].CompareAndSwap(0, uint64(freeSlot)) // fails if another process adds it, too
	}
	return nil
}

// takeRun takes all slots of a run or none.
func (f *file) takeRun(r run) (bool, error) {
	if f.identity.Load() == 0 && f.takePlace() == noPlace {
		return f.takeByLock(r)
	}
	return f.swapAll(r, freeSlot, owner(f.identity.Load())), nil
}

// takeByLock takes all slots of a run or none, without a place: it locks them. The lock
// comes first, since an owner that names a lock counts only with it.
func (f *file) takeByLock(r run) (bool, error) {
	ok, err := tryLock(f.fd, exclusive, r.offset(), int64(r.n))
	if !ok || err != nil {
		return false, err
	}
	if !f.swapAll(r, freeSlot, newOwner(lockedPlace, f.nextIncarnation())) {
		unlock(f.fd, r.offset(), int64(r.n))
		return false, nil
	}
	return true, nil
}

// swapAll swaps the owners of all slots of a run or of none. An invalid owner shows that
// the file is damaged.
func (f *file) swapAll(r run, from, to owner) bool {
	for slot := r.at; slot < r.at+r.n; slot++ {
		if f.owners[slot].CompareAndSwap(uint64(from), uint64(to)) {
			continue
		}
		if !owner(f.owners[slot].Load()).valid() {
			f.damaged.Store(true)
		}
		for ; slot > r.at; slot-- {
			f.owners[slot-1].CompareAndSwap(uint64(to), uint64(from))
		}
		return false
	}
	return true
}

// returnRun returns the slots of a run. If they are held by locks, fd has these.
func (f *file) returnRun(fd int, r run) {
	self, unlocked := f.identity.Load(), false
	for slot := r.at; slot < r.at+r.n; slot++ {
		word := &f.owners[slot]
		if self != 0 && word.CompareAndSwap(self, uint64(freeSlot)) {
			continue
		}
		o := owner(word.Load())
		switch {
		case !o.valid():
			f.damaged.Store(true)
		case o.locked() && !unlocked:
			unlock(fd, r.offset(), int64(r.n))
			unlocked = true
		}
		if o.locked() {
			word.CompareAndSwap(uint64(o), uint64(freeSlot)) // unless a scan has done so
		}
	}
}

// lockRunOn locks a run, which this process owns, on another descriptor, and has the
// owners name these locks. No slot is free at any time. A damaged file grants nothing as long as
// that descriptor is open, so there the locks alone suffice.
func (f *file) lockRunOn(fd int, r run) (err error) {
	f.touch(func() {
		if owner(f.owners[r.at].Load()).locked() {
			err = moveLock(f.fd, fd, r)
			return
		}
		if err = changeLock(fd, exclusive, r); err == nil {
			f.swapAll(r, owner(f.identity.Load()), newOwner(lockedPlace, f.nextIncarnation()))
		}
	})
	if f.damaged.Load() {
		return changeLock(fd, exclusive, r)
	}
	return err
}

// heldSlots returns a bitmap of the held slots, and frees those of ended processes. A
// slot that is held during the whole call is always included. There is a system call for
// each process that holds slots, and for each slot that is held by a lock.
func (f *file) heldSlots(ctx context.Context) ([]uint64, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	reach := min(f.head.reach.Load(), maxCapacity)
	held := make([]uint64, (reach+wordBits-1)/wordBits)
	for i := range held {
		held[i] = f.mine[i].Load()
	}
	living := liveness{f: f}
	for slot := range reach {
		word := &f.owners[slot]
		o := owner(word.Load())
		if o == freeSlot {
			continue
		}
		lives, err := living.of(ctx, o, slot)
		switch {
		case err != nil:
			return nil, err
		case lives:
			held[slot/wordBits] |= 1 << (slot % wordBits)
		case o.valid():
			word.CompareAndSwap(uint64(o), uint64(freeSlot))
		}
	}
	return held, nil
}

// A liveness knows which owners live, during one scan.
type liveness struct {
	f     *file
	last  owner // of the slot before; most scans find one or two owners
	lives bool
	known map[owner]bool
}

// of reports whether the owner of a slot lives. If the owner is invalid, only the bitmap
// shows whether the slot is held; such a slot is never granted.
func (l *liveness) of(ctx context.Context, o owner, slot uint32) (bool, error) {
	f := l.f
	switch {
	case !o.valid():
		return f.bitmap[slot/wordBits].Load()&(1<<(slot%wordBits)) != 0, nil
	case uint64(o) == f.identity.Load():
		return true, nil
	case o.locked() && f.mine[slot/wordBits].Load()&(1<<(slot%wordBits)) != 0: // conflict does not find the locks of f.fd
		return true, nil
	case o == l.last:
		return l.lives, nil
	}
	lives, known := l.known[o]
	if !known {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		var err error
		if lives, err = f.lives(o, slot); err != nil || o.locked() && !lives { // slots with other locks may have the same owner: parts of a permit
			return false, err
		}
		if l.known == nil {
			l.known = map[owner]bool{}
		}
		l.known[o] = lives
	}
	l.last, l.lives = o, lives
	return lives, nil
}

// lives reports whether the process that o names has not ended, or whether any process
// has the lock that it names.
func (f *file) lives(o owner, slot uint32) (bool, error) {
	if o.locked() {
		return conflict(f.fd, slotLocks+int64(slot), 1)
	}
	if f.places[o.place()].incarnation.Load() != o.incarnation() { // another process has the place, or none has had it
		return false, nil
	}
	return conflict(f.fd, placeLocks+int64(o.place()), 1)
}
