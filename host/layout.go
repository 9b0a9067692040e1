package host

import (
	"sync/atomic"

	"github.com/sema-go/sema"
)

// The layout of the file, in the byte order of the machine. Every opener maps it.
// Parts that no process has needed yet are holes. Disk space for them is reserved
// before they are touched, because on a full disk the kernel would otherwise kill the
// process that touches them.
const (
	bitmapAt  = 4096
	placesAt  = bitmapAt + maxCapacity/8
	recordsAt = placesAt + maxPlaces*placeSize
	ownersAt  = recordsAt + maxCapacity*recordSize
	mapSize   = ownersAt + maxCapacity*ownerSize

	maxCapacity = 1 << 16 // slots
	maxPlaces   = 1 << 12 // processes that have held permits or waited and have the file open
	placeSize   = 64
	recordSize  = 64
	ownerSize   = 8
	wordBits    = 64

	// The first word of a file identifies it. The last two bytes are the version of
	// the layout; a process that does not know that version does not use the file.
	magic      = 0x0033_7473_6f68_6573
	beginning  = 0x0030_7473_6f68_6573 // the file is being created, or its creator was killed
	familyMask = 0x0000_ffff_ffff_ffff // the same in all versions
)

// The offsets of the locks. They are beyond all content: the byte of a lock need not
// exist.
const (
	presenceLock = 1 << 32          // shared by all openers; exclusive to set up or remove the file
	turnLock     = presenceLock + 1 // see turn
	placeLocks   = 2 << 32          // one for each place, held by the process at that place
	slotLocks    = 3 << 32          // one for each slot, for owners that name a lock
)

// A header is the beginning of the file.
type header struct {
	magic      atomic.Uint64 // written last
	config     atomic.Uint64 // a config
	tickets    atomic.Uint64 // the last ticket issued
	high       atomic.Uint32 // a highMark
	reach      atomic.Uint32 // the highest capacity so far: no slot from this index on is held
	maxWaiters atomic.Int64  // bound for all processes together; 0: no bound, sema.NoWaiters: no caller may wait

	incarnations atomic.Uint64 // the last one issued, see owner
}

// stored contains the values that stay in the file while no process has it open.
type stored struct {
	capacity   int64
	maxWaiters int // 0: no bound; sema.NoWaiters: no caller may wait
}

// maxStoredWaiters is the highest bound of waiters that can be stored.
const maxStoredWaiters = 1 << 30

// storedWaiters clamps a bound read from the file: other processes may have written
// any value.
func storedWaiters(n int64) int { return int(max(sema.NoWaiters, min(n, maxStoredWaiters))) }

// A config packs the capacity and the state into one word. Every change yields a word
// that differs from all earlier ones, so that a claim can check that the config has
// not changed since it was read.
//
//	bits 0–30   capacity
//	bit  31     draining: no claim succeeds
//	bit  32     unsettled: slots beyond the capacity may be held
//	bits 33–63  number of changes
type config uint64

const (
	capacityMask config = 1<<31 - 1
	drainingFlag config = 1 << 31
	unsettled    config = 1 << 32
	oneChange    config = 1 << 33
	changesMask         = ^(oneChange - 1)
)

func (c config) capacity() int64 { return int64(min(c&capacityMask, maxCapacity)) }

func (c config) draining() bool { return c&drainingFlag != 0 }

// changed returns the successor of c with the given capacity and flags.
func (c config) changed(capacity int64, flags config) config {
	return (c+oneChange)&changesMask | config(capacity) | flags
}

// A place is the entry of a process that holds permits or waits in the queue of the host.
// The process holds the place's lock. What a place that is not locked shows belongs to a
// process that has ended.
type place struct {
	ticket atomic.Uint64 // ticket of the process's first waiter, 0 if there is none
	beat   atomic.Int64  // when the process last polled, by clock, which all processes share
	queue  atomic.Uint64 // a queueLength
	word   atomic.Uint32 // the futex that the process sleeps on
	_      uint32

	incarnation atomic.Uint64 // distinguishes the processes that have had this place
	_           [placeSize - 40]byte
}

// A queueLength packs the number of waiters of a process and the ticket of a caller
// that is about to join them if MaxWaiters allows. Both share a word so that the
// caller is counted exactly once at every moment, see admitLocked.
//
//	bits 0–19   waiters
//	bits 20–63  ticket of the caller, 0 if there is none
type queueLength uint64

const (
	lengthBits = 20
	ticketMask = 1<<(64-lengthBits) - 1
)

// maxWaiters is the highest number of waiters that is counted for one process.
const maxWaiters = 1<<lengthBits - 1

func queueLengthOf(waiters int32, joining uint64) queueLength {
	return queueLength(min(uint64(waiters), maxWaiters) | joining<<lengthBits)
}

func (q queueLength) waiters() int { return int(q & maxWaiters) }

// joining returns the ticket of the caller that is about to join, 0 if there is none.
func (q queueLength) joining() uint64 { return uint64(q >> lengthBits) }

// before returns the number of waiters, plus one if a caller with a lower ticket is
// about to join.
func (q queueLength) before(ticket uint64) int {
	n := q.waiters()
	if joining := q.joining(); joining != 0 && joining < ticket&ticketMask {
		n++
	}
	return n
}

// joinsAfter reports whether a caller with a higher ticket is about to join.
func (q queueLength) joinsAfter(ticket uint64) bool { return q.joining() > ticket&ticketMask }

// A highMark bounds the search for waiters: no place from its index on has a waiter.
// It counts how often it was raised, so that lowering it fails if a process has joined
// meanwhile.
//
//	bits 0–15   index
//	bits 16–31  number of raises
type highMark uint32

func (h highMark) index() int { return int(min(h&0xffff, maxPlaces)) }

func (h highMark) raised(to int) highMark {
	return (h+1<<16)&^0xffff | highMark(max(h.index(), to))
}

func (h highMark) lowered(to int) highMark { return h&^0xffff | highMark(to) }

// A record describes the holder of the slots that start at the record's own slot. The
// holder writes the record. It is valid only while the slot is locked.
type record struct {
	pid       uint32
	namespace uint32 // PID namespace of the process
	slots     uint32 // number of slots, starting with this one
	permit    uint32 // distinguishes the permits of a process
	since     int64  // Unix nanoseconds; 0 if the slot is free
	started   uint64 // distinguishes processes with the same PID
	inherited uint32 // 1: another process may hold the permit after this one has ended
	command   [recordSize - 36]byte
}
