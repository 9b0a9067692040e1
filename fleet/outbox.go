package fleet

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// An outbox queues events that did not happen in a caller's goroutine, and reports them in
// order. Its goroutine is not one of the client's workers, since an observer may close the
// client. Its mutex is acquired last.
type outbox struct {
	mu         sync.Mutex
	events     []sema.Event
	running    bool     // the goroutine runs
	panics     int64    // number of panics of observers
	mismatches []string // reported before
}

// maxUnreported bounds the events that wait for a slow observer.
const maxUnreported = 1000

// post queues an event. If the queue is full, it drops a renewal, or else the oldest event.
func (o *outbox) post(m *sema.Monitor, e sema.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m == nil || len(o.events) >= maxUnreported && e.Kind == sema.EventRenewed {
		return
	}
	o.events = append(o.events[max(0, len(o.events)-maxUnreported+1):], e)
	if !o.running {
		o.running = true
		go o.run(m)
	}
}

func (o *outbox) run(m *sema.Monitor) {
	for {
		o.mu.Lock()
		if len(o.events) == 0 {
			o.running = false
			o.mu.Unlock()
			return
		}
		e := o.events[0]
		o.events = o.events[1:]
		o.mu.Unlock()
		o.report(m, e)
	}
}

// report reports an event, and recovers if an observer panics, since no caller could.
func (o *outbox) report(m *sema.Monitor, e sema.Event) {
	defer func() {
		if recover() != nil {
			o.mu.Lock()
			o.panics++
			o.mu.Unlock()
		}
	}()
	m.Report(e)
}

// panicked returns the number of panics of observers.
func (o *outbox) panicked() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.panics
}

// isNew reports whether a mismatch was not reported before, and remembers it.
func (o *outbox) isNew(mismatch string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.mismatches, mismatch) {
		return false
	}
	o.mismatches = append(o.mismatches, mismatch)
	return true
}

// report queues an event for the observers. The session's mutex may be held.
func (s *session) report(e sema.Event) { s.events.post(s.monitor, e) }

// checkMismatch reports a stored configuration that differs from the requested one.
func (s *session) checkMismatch(stored protocol.Config) {
	if differs := s.settings.mismatch(configOf(stored)); differs != "" {
		s.reportMismatch(stored.Capacity, fmt.Sprintf("semaphore %q is stored with %s; the stored configuration applies", s.settings.label, differs),
			"use the stored configuration, or change it with Configure")
	}
}

// reportMismatch reports a mismatch once, to the observers or else to the default logger.
func (s *session) reportMismatch(capacity int64, report, hint string) {
	switch {
	case !s.events.isNew(report):
	case s.monitor != nil:
		s.report(sema.Event{Kind: sema.EventMismatched, Capacity: capacity, Report: report})
	default:
		go slog.Default().Warn("sema: "+report, "hint", hint) // a slow handler must not block the session's mutex
	}
}

// A monitored is the semaphore that a monitor reads.
type monitored struct{ *Semaphore }

// Stats returns the state without counters: the monitor reads it for each event.
func (m monitored) Stats() sema.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.knownLocked()
}
