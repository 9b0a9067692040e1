package host

import (
	"errors"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/callsite"
)

// admitted makes the permit and tells of it. Should an observer panic, the
// permit is not lost with the stack.
func (s *Semaphore) admitted(n int64, start time.Time, runs []run) sema.Permit {
	now := time.Now()
	s.file.writeRecords(runs, now, false)
	permit := sema.NewPermit(n, &lease{sem: s, since: now, runs: runs})
	if len(s.observers) == 0 {
		return permit
	}
	told := false
	defer func() {
		if !told {
			permit.Release()
		}
	}()
	s.tell(sema.Event{Kind: sema.EventAcquired, Weight: n, Wait: now.Sub(start)})
	told = true
	return permit
}

func (s *Semaphore) refused(n int64, start time.Time, err error) {
	kind := sema.EventCancelled
	if semaErr := (*sema.Error)(nil); errors.As(err, &semaErr) {
		kind = sema.EventRejected
	}
	s.tell(sema.Event{Kind: kind, Weight: n, Wait: time.Since(start), Err: err})
}

func (s *Semaphore) tell(e sema.Event) {
	if len(s.observers) == 0 {
		return
	}
	e.Name, e.Site = s.name, callsite.Here()
	e.Waiters = int(s.file.line.length.Load())
	for _, o := range s.observers {
		o.Observe(e)
	}
}
