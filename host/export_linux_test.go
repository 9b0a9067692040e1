package host

import "time"

// SetPace changes how often this process looks by itself while it waits, and after
// how long without a look it takes other processes for stopped. It is called before
// the semaphore is used.
func SetPace(s *Semaphore, poll, passAfter time.Duration) {
	s.file.pace.poll, s.file.pace.passAfter = poll, passAfter
}

// Stopped returns how many waiting processes are taken for stopped.
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
