package host

import "sync/atomic"

// The file, in the byte order of the machine. It is mapped by every opener.
// Parts of it that nobody has needed yet are holes: they are reserved before
// they are touched, because a full disk would otherwise kill the process that
// touches them.
const (
	bitmapAt  = 4096
	placesAt  = bitmapAt + maxCapacity/8
	recordsAt = placesAt + maxPlaces*placeSize
	mapSize   = recordsAt + maxCapacity*recordSize

	maxCapacity = 1 << 16 // slots
	maxPlaces   = 1 << 12 // processes that have waited and have the file open
	placeSize   = 64
	recordSize  = 64
	wordBits    = 64

	// The first word of a file tells what it is. The last two bytes are the
	// version of the layout; a process that does not know it stays out.
	magic      = 0x0031_7473_6f68_6573
	beginning  = 0x0030_7473_6f68_6573 // it is being made, or its maker was killed
	familyMask = 0x0000_ffff_ffff_ffff // the same in all versions
)

// Where the locks are. They lie beyond all content: a lock needs no byte to be
// there.
const (
	presenceLock = 1 << 32          // shared by all openers; exclusive for who sets up or removes
	turnLock     = presenceLock + 1 // see turn
	placeLocks   = 2 << 32          // one a place, by the process that has it
	slotLocks    = 3 << 32          // one a slot: these are the permits
)

// A header is the beginning of the file.
type header struct {
	magic   atomic.Uint64 // written last
	config  atomic.Uint64 // a config
	tickets atomic.Uint64 // the last drawn
	high    atomic.Uint32 // no place from here on is in line
	reach   atomic.Uint32 // no slot from here on is held; the highest capacity there was
}

// A config is the capacity in a word that differs from every earlier one, so
// that whoever locked a slot can see that what it went by still stands.
//
//	bits 0–31   capacity
//	bit  32     unsettled: slots beyond the capacity may be held
//	bits 33–63  counts the changes
type config uint64

const (
	unsettled   config = 1 << 32
	oneChange   config = 1 << 33
	changesMask        = ^(oneChange - 1)
)

func (c config) capacity() int64 { return int64(min(uint32(c), maxCapacity)) }

// changed is the config that follows c.
func (c config) changed(capacity int64, flag config) config {
	return (c+oneChange)&changesMask | config(capacity) | flag
}

// A place is where a process that waits stands in the host's line. Its process
// holds the place's lock; a ticket in a place that is not locked is a dead
// process's.
type place struct {
	ticket  atomic.Uint64 // the process's first waiter's, 0 if nobody waits
	beat    atomic.Int64  // when the process last looked, by the clock all share
	waiters atomic.Uint32 // how many wait in the process
	word    atomic.Uint32 // what it sleeps on
	_       [placeSize - 24]byte
}

// A record says who has the slots from its own on. It is written by the holder
// and believed only while the slot is locked.
type record struct {
	pid       uint32
	namespace uint32 // in which the process has that number
	slots     uint32 // from this one on
	permit    uint32 // tells the permits of a process apart
	since     int64  // Unix nanoseconds; 0 if nobody has it
	started   uint64 // tells processes of one number apart
	inherited uint32 // 1: another process may have it when this one is gone
	command   [recordSize - 36]byte
}
