package host

import "time"

// SetTiming sets the interval at which this process polls while it waits, and the age
// of the last poll from which another process counts as stopped. Call it before the
// semaphore is used.
func SetTiming(s *Semaphore, poll, skipAfter time.Duration) {
	s.file.timing.poll, s.file.timing.skipAfter = poll, skipAfter
}

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
