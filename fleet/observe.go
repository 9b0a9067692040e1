package fleet

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A localLease is a permit of a local semaphore, as the monitor reports it.
type localLease struct {
	sem   *Semaphore
	inner sema.Permit
}

// Name returns the name of the fleet semaphore.
func (l *localLease) Name() string { return l.sem.settings.label }

// Release implements [sema.Lease].
func (l *localLease) Release() { l.inner.Release() }

// Split implements [sema.Permit.Split].
func (l *localLease) Split(n int64) (first, rest sema.Lease, err error) {
	a, b, err := l.inner.Split(n)
	if err != nil {
		return nil, nil, err
	}
	return &localLease{l.sem, a}, &localLease{l.sem, b}, nil
}

// Lost implements [sema.Permit.Lost].
func (l *localLease) Lost() <-chan struct{} { return l.inner.Lost() }

// Err implements [sema.Permit.Err].
func (l *localLease) Err() error { return l.inner.Err() }

// monitored is a semaphore as its monitor sees it.
type monitored struct{ *Semaphore }

// Stats returns what the monitor reads: it is called for each event.
func (m monitored) Stats() sema.Stats {
	s := m.Semaphore
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.knownLocked()
}

// A telling is events that happened to nobody's goroutine. They are told in
// order, by one that is none of the client's workers, since an observer may
// close the client.
type telling struct {
	events     []sema.Event
	on         bool
	mismatches []string // that were reported
}

// maxUntold bounds how far an observer may lag behind.
const maxUntold = 1000

// tellLater is for who holds the mutex.
func (s *Semaphore) tellLater(e sema.Event) {
	t := &s.telling
	if s.monitor == nil || len(t.events) >= maxUntold && e.Kind == sema.EventRenewed {
		return
	}
	t.events = append(t.events[max(0, len(t.events)-maxUntold+1):], e)
	if !t.on {
		t.on = true
		go s.tellAll()
	}
}

func (s *Semaphore) tellAll() {
	for {
		s.mu.Lock()
		t := &s.telling
		if len(t.events) == 0 {
			t.on = false
			s.mu.Unlock()
			return
		}
		e := t.events[0]
		t.events = t.events[1:]
		s.mu.Unlock()
		s.tellSafely(e)
	}
}

// tellSafely survives an observer that panics: nobody could recover for it.
func (s *Semaphore) tellSafely(e sema.Event) {
	defer func() {
		if recover() != nil {
			s.mu.Lock()
			s.counts.Panics++
			s.mu.Unlock()
		}
	}()
	s.monitor.Report(e)
}

// tellMismatch reports a stored configuration that is not what was asked for. The mutex
// is held.
func (s *Semaphore) tellMismatch(stored protocol.Config) {
	if differs := s.settings.mismatch(configOf(stored)); differs != "" {
		s.reportMismatch(stored.Capacity, fmt.Sprintf("semaphore %q is stored with %s; the stored configuration applies", s.settings.label, differs),
			"use the stored configuration, or change it with Configure")
	}
}

// reportMismatch reports to the observers, or else to the default logger, each report
// once. The mutex is held.
func (s *Semaphore) reportMismatch(capacity int64, report, hint string) {
	if slices.Contains(s.telling.mismatches, report) {
		return
	}
	s.telling.mismatches = append(s.telling.mismatches, report)
	if s.monitor != nil {
		s.tellLater(sema.Event{Kind: sema.EventMismatched, Capacity: capacity, Report: report})
		return
	}
	go slog.Default().Warn("sema: "+report, "hint", hint) // a slow handler must not hold the mutex
}

// textOf is labels as key=value, in order.
func textOf(labels map[string]string) string {
	var b strings.Builder
	for i, key := range slices.Sorted(maps.Keys(labels)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		value := labels[key]
		if strings.ContainsAny(value, " \"=") || strconv.Quote(value) != `"`+value+`"` {
			value = strconv.Quote(value)
		}
		b.WriteString(key + "=" + value)
	}
	return b.String()
}
