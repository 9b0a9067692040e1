package fleet

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// An outbox holds events that happened in no caller's goroutine, until they are reported
// in order: by a goroutine that is none of the client's workers, since an observer may
// close the client. Its mutex is taken last.
type outbox struct {
	mu         sync.Mutex
	events     []sema.Event
	works      bool     // a goroutine reports
	panics     int64    // of observers
	mismatches []string // that were reported
}

// maxUnreported bounds how far an observer may lag behind.
const maxUnreported = 1000

// post reports an event soon. It drops the oldest if there are too many, and renewals
// first of all.
func (o *outbox) post(m *sema.Monitor, e sema.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m == nil || len(o.events) >= maxUnreported && e.Kind == sema.EventRenewed {
		return
	}
	o.events = append(o.events[max(0, len(o.events)-maxUnreported+1):], e)
	if !o.works {
		o.works = true
		go o.work(m)
	}
}

func (o *outbox) work(m *sema.Monitor) {
	for {
		o.mu.Lock()
		if len(o.events) == 0 {
			o.works = false
			o.mu.Unlock()
			return
		}
		e := o.events[0]
		o.events = o.events[1:]
		o.mu.Unlock()
		o.report(m, e)
	}
}

// report survives an observer that panics, since no caller could recover.
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

// panicked returns how often observers have panicked.
func (o *outbox) panicked() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.panics
}

// first reports whether a mismatch was not reported before.
func (o *outbox) first(mismatch string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.mismatches, mismatch) {
		return false
	}
	o.mismatches = append(o.mismatches, mismatch)
	return true
}

// report reports an event soon. The mutex may be held.
func (s *session) report(e sema.Event) { s.events.post(s.monitor, e) }

// checkMismatch reports a stored configuration that is not what was asked for.
func (s *session) checkMismatch(stored protocol.Config) {
	if differs := s.settings.mismatch(configOf(stored)); differs != "" {
		s.reportMismatch(stored.Capacity, fmt.Sprintf("semaphore %q is stored with %s; the stored configuration applies", s.settings.label, differs),
			"use the stored configuration, or change it with Configure")
	}
}

// reportMismatch reports to the observers, or else to the default logger, each report
// once.
func (s *session) reportMismatch(capacity int64, report, hint string) {
	switch {
	case !s.events.first(report):
	case s.monitor != nil:
		s.report(sema.Event{Kind: sema.EventMismatched, Capacity: capacity, Report: report})
	default:
		go slog.Default().Warn("sema: "+report, "hint", hint) // a slow handler must not hold the mutex
	}
}

// monitored is a semaphore as its monitor sees it.
type monitored struct{ *Semaphore }

// Stats returns what the monitor reads: it is called for each event.
func (m monitored) Stats() sema.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.knownLocked()
}
