package host

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/sema-go/sema"
)

// A Holder is a permit that is held, in whatever process. Every process that
// may use the semaphore can write what the file says of holders. It is checked
// when it is read, and safe to print, but may be a lie.
type Holder struct {
	PID     int       // 0 if its process could not write it down
	Weight  int64     // how many permits it is
	Since   time.Time // when it was acquired; never in the future
	Command string    // the process's command line, or its name if it is gone and left the permit to another; printable, 1024 bytes at most
}

// Holders is who holds permits now, the oldest first. The locks are asked
// whether what the file says of them is true still.
func (s *Semaphore) Holders() ([]Holder, error) {
	f := s.file
	if !f.ref() {
		return nil, s.fault("holders", 0, sema.ErrClosed, "")
	}
	defer f.unref()
	var holders []Holder
	err := f.guarded(func() (err error) {
		holders, err = f.holders()
		return err
	})
	if err != nil {
		return nil, f.wrap("holders", err)
	}
	return holders, nil
}

func (f *file) holders() ([]Holder, error) {
	held, err := f.heldSlots(context.Background())
	if err != nil {
		return nil, err
	}
	type key struct {
		pid, namespace, permit uint32
		started                uint64
	}
	now := time.Now().UnixNano()
	index := map[key]int{}
	holders := []Holder{}
	for at := uint32(0); int(at) < len(held)*wordBits; {
		if !isHeld(held, at) {
			at++
			continue
		}
		r := f.readRecord(at)
		if !r.credible(held, at) {
			holders = append(holders, Holder{Weight: 1})
			at++
			continue
		}
		at += r.slots
		k := key{r.pid, r.namespace, r.permit, r.started}
		if i, known := index[k]; known {
			holders[i].Weight += int64(r.slots)
			continue
		}
		index[k] = len(holders)
		holders = append(holders, Holder{
			PID: int(r.pid), Weight: int64(r.slots), Since: time.Unix(0, min(r.since, now)), Command: r.commandLine(),
		})
	}
	slices.SortStableFunc(holders, func(a, b Holder) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
	return holders, nil
}

func isHeld(held []uint64, slot uint32) bool { return held[slot/wordBits]&(1<<(slot%wordBits)) != 0 }

// maxPID is the highest number that Linux gives to a process; other systems
// have lower ones.
const maxPID = 1 << 22

// credible reports whether the record can be that of whoever holds the slots
// from at on, and not one that a dead process left, or damage.
func (r *record) credible(held []uint64, at uint32) bool {
	if r.since <= 0 || r.pid == 0 || r.pid > maxPID {
		return false
	}
	if r.slots == 0 || int64(at)+int64(r.slots) > int64(len(held)*wordBits) {
		return false
	}
	for slot := at; slot < at+r.slots; slot++ {
		if !isHeld(held, slot) {
			return false
		}
	}
	return r.inherited != 0 || r.namespace != self().namespace || r.started == startOf(int(r.pid))
}

// Stats is a snapshot of the semaphore on the whole machine. It is exact when
// nobody acquires or releases meanwhile.
func (s *Semaphore) Stats() (sema.Stats, error) {
	f := s.file
	if !f.ref() {
		return sema.Stats{Closed: true}, s.fault("stats", 0, sema.ErrClosed, "")
	}
	defer f.unref()
	stats, err := f.stats(context.Background())
	stats.Closed = s.closed.Load()
	return stats, f.wrap("stats", err)
}

func (f *file) stats(ctx context.Context) (stats sema.Stats, err error) {
	err = f.guarded(func() (err error) {
		stats, err = f.count(ctx)
		return err
	})
	if err != nil {
		return sema.Stats{}, err
	}
	return stats, nil
}

// maxWaiters is how many waiters of one process are counted: more is damage, and
// would overflow an int of 32 bits.
const maxWaiters = 1 << 18

func (f *file) count(ctx context.Context) (sema.Stats, error) {
	held, err := f.heldSlots(ctx)
	if err != nil {
		return sema.Stats{}, err
	}
	capacity, inUse := f.config().capacity(), countHeld(held)
	waiters := 0
	if f.own.Load() == noPlace {
		waiters = int(f.line.length.Load())
	}
	for i := range f.high() {
		if p := &f.places[i]; p.ticket.Load() != 0 {
			alive, err := f.alive(i)
			if err != nil {
				return sema.Stats{}, err
			}
			if alive {
				waiters += int(min(p.waiters.Load(), maxWaiters))
			}
		}
	}
	return sema.Stats{
		Capacity: capacity, InUse: inUse, Waiters: waiters,
		Free: max(0, capacity-inUse), Debt: max(0, inUse-capacity),
	}, nil
}

// pageSize is the unit in which room for records is made.
const pageSize = 4096

// writeRecords says who has the slots of a permit. Without room on the disk the
// holder stays unknown.
func (f *file) writeRecords(runs []run, since time.Time, inherited bool) {
	mine := self()
	mine.permit = f.permits.Add(1)
	mine.since = since.UnixNano()
	if inherited {
		mine.inherited = 1
	}
	f.touch(func() {
		for _, r := range runs {
			mine.slots = r.n
			if f.recordRoom(r.at) {
				f.records[r.at] = mine
			}
		}
	})
}

// recordRoom makes sure that the page of a slot's record is there.
func (f *file) recordRoom(slot uint32) bool {
	page := slot * recordSize / pageSize
	word, bit := &f.roomFor[page/wordBits], uint64(1)<<(page%wordBits)
	if word.Load()&bit != 0 {
		return true
	}
	if reserve(f.fd, recordsAt+int64(page)*pageSize, pageSize) != nil {
		return false
	}
	word.Or(bit)
	return true
}

func (f *file) eraseRecord(r run) {
	if page := r.at * recordSize / pageSize; f.roomFor[page/wordBits].Load()&(1<<(page%wordBits)) != 0 {
		f.records[r.at].since = 0
	}
}

// readRecord reads by the file and not by the mapping: there may be a hole
// there, and touching it would need room on the disk.
func (f *file) readRecord(slot uint32) (r record) {
	bytes := (*[recordSize]byte)(unsafe.Pointer(&r))
	if _, err := f.file.ReadAt(bytes[:], recordsAt+int64(slot)*recordSize); err != nil {
		return record{}
	}
	return r
}

// commandLine is the command of the process that wrote the record, if that is
// the process of that number still.
func (r *record) commandLine() string {
	if r.namespace == self().namespace && r.started == startOf(int(r.pid)) {
		if line := printable(commandOf(int(r.pid)), maxCommand); line != "" {
			return line
		}
	}
	name, _, _ := bytes.Cut(r.command[:], []byte{0})
	return printable(string(name), maxCommand)
}

// self is what is the same in all records of this process.
var self = sync.OnceValue(func() (r record) {
	r.pid = uint32(os.Getpid())
	r.namespace = namespaceOf()
	r.started = startOf(os.Getpid())
	copy(r.command[:], processName())
	return r
})
