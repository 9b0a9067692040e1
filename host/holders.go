package host

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// A Holder describes a permit that a process of the machine holds. Every process that
// may use the semaphore can write the records of holders. They are checked when they
// are read and safe to print, but may be wrong.
type Holder struct {
	PID     int       // 0 if the process could not write its record
	Weight  int64     // number of permits
	Slots   []int64   // their numbers, ascending; see [sema.Permit.Slots]
	Since   time.Time // when it was acquired; never in the future
	Command string    // the process's command line, or its name if it has ended and another inherited the permit; printable, at most 1024 bytes
}

// holders returns the holders of the held slots, oldest first.
func (f *file) holders(held []uint64) []Holder {
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
		if !r.valid(held, at) {
			holders = append(holders, Holder{Weight: 1, Slots: []int64{int64(at)}})
			at++
			continue
		}
		slots := run{at, r.slots}
		at += r.slots
		k := key{r.pid, r.namespace, r.permit, r.started}
		if i, known := index[k]; known {
			holders[i].Weight += int64(r.slots)
			holders[i].Slots = slots.appendTo(holders[i].Slots)
			continue
		}
		index[k] = len(holders)
		holders = append(holders, Holder{
			PID: int(r.pid), Weight: int64(r.slots), Slots: slots.appendTo(nil), Since: time.Unix(0, min(r.since, now)), Command: r.commandLine(),
		})
	}
	slices.SortStableFunc(holders, func(a, b Holder) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
	return holders
}

func isHeld(held []uint64, slot uint32) bool { return held[slot/wordBits]&(1<<(slot%wordBits)) != 0 }

// maxPID is the highest PID on Linux; other systems have lower limits.
const maxPID = 1 << 22

// valid reports whether the record can describe the holder of the slots starting at
// at: it is neither damaged nor left by a killed process.
func (r *record) valid(held []uint64, at uint32) bool {
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

// pageSize is the unit, in bytes, in which disk space for records is reserved.
const pageSize = 4096

// writeRecords records this process as the holder of the slots of a permit. If the
// disk is full, the holder stays unknown.
func (f *file) writeRecords(runs []run, since time.Time, inherited bool) {
	f.touch(func() { f.writeRecordsTouching(runs, since, inherited) })
}

// writeRecordsTouching does the work of writeRecords. The caller is within touch.
func (f *file) writeRecordsTouching(runs []run, since time.Time, inherited bool) {
	mine := self()
	mine.permit = f.permits.Add(1)
	mine.since = since.UnixNano()
	if inherited {
		mine.inherited = 1
	}
	for _, r := range runs {
		mine.slots = r.n
		if f.reserveRecord(r.at) {
			f.records[r.at] = mine
		}
	}
}

// reserveRecord reserves disk space for the page of a slot's record, and reports
// whether there is any.
func (f *file) reserveRecord(slot uint32) bool {
	page := slot * recordSize / pageSize
	word, bit := &f.reservedPages[page/wordBits], uint64(1)<<(page%wordBits)
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
	if page := r.at * recordSize / pageSize; f.reservedPages[page/wordBits].Load()&(1<<(page%wordBits)) != 0 {
		f.records[r.at].since = 0
	}
}

// readRecord returns the record of a slot. It reads the file instead of the mapping,
// which may have a hole: touching a hole would need disk space.
func (f *file) readRecord(slot uint32) (r record) {
	bytes := (*[recordSize]byte)(unsafe.Pointer(&r))
	if _, err := f.file.ReadAt(bytes[:], recordsAt+int64(slot)*recordSize); err != nil {
		return record{}
	}
	return r
}

// commandLine returns the command line of the process that wrote the record. If that
// process has ended, or is in another PID namespace, it returns the recorded name.
func (r *record) commandLine() string {
	if r.namespace == self().namespace && r.started == startOf(int(r.pid)) {
		if line := printable(commandOf(int(r.pid)), maxCommand); line != "" {
			return line
		}
	}
	name, _, _ := bytes.Cut(r.command[:], []byte{0})
	return printable(string(name), maxCommand)
}

// self returns the fields that all records of this process have in common.
var self = sync.OnceValue(func() (r record) {
	r.pid = uint32(os.Getpid())
	r.namespace = namespaceOf()
	r.started = startOf(os.Getpid())
	copy(r.command[:], processName())
	return r
})
