package host

import "time"

// SetTiming sets the interval at which this process polls while it waits, and the age
// of the last poll from which another process counts as stopped. The process does not
// watch holders before it polls. Call it before the semaphore is used.
func SetTiming(s *Semaphore, poll, skipAfter time.Duration) {
	t := &s.file.timing
	t.poll, t.watchAfter, t.skipAfter = poll, poll, skipAfter
}

// SetWatchAfter sets how long the first waiter waits before it watches the holders. Call
// it after SetTiming.
func SetWatchAfter(s *Semaphore, d time.Duration) { s.file.timing.watchAfter = d }

// Stopped returns the number of waiting processes that count as stopped.
func Stopped(s *Semaphore) (stopped int) {
	f := s.file
	f.touch(func() {
		for i := range f.high() {
			if p := &f.places[i]; p.ticket.Load() != 0 && f.stopped(p, clock()) {
				stopped++
			}
		}
	})
	return stopped
}

// Watch watches the holders and returns how many, and whether an attempt has to follow.
// It does so twice in a row, as a waiter does that gets no permit between; more is the
// result of the second time.
func Watch(s *Semaphore) (watched int, again, more bool) {
	h := watch{f: s.file}
	defer h.stop()
	again = h.refresh()
	more = h.refresh()
	for _, opened := range h.watched {
		if opened != nil {
			watched++
		}
	}
	return watched, again, more
}

// HoldingProcesses returns the number of processes that hold permits according to shared
// memory, at most those that a process watches.
func HoldingProcesses(s *Semaphore) int { return len(s.file.holdingProcesses()) }

// RecordHolders makes shared memory show that each of the first n slots is held by a
// process of its own, with ascending PIDs.
func RecordHolders(s *Semaphore, n, pid int, started uint64) {
	f := s.file
	for slot := range uint32(n) {
		f.writeRecords([]run{{slot, 1}}, time.Now(), false)
		f.records[slot].pid, f.records[slot].started = uint32(pid)+slot, started
		f.bitmap[slot/wordBits].Or(1 << (slot % wordBits))
	}
}

// Start returns the start time of a process.
func Start(pid int) uint64 { return startOf(pid) }
