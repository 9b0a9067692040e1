package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// admitted tells of a permit. Should the observer panic, the permit is not lost
// with the stack.
func (s *Semaphore) admitted(permit sema.Permit, start time.Time) sema.Permit {
	if s.options.Observer == nil || permit.Weight() == 0 {
		return permit
	}
	if _, own := permit.Lease().(*lease); !own {
		permit = sema.NewPermit(permit.Weight(), &watched{sem: s, inner: permit, since: time.Now()})
	}
	told := false
	defer func() {
		if !told {
			permit.Release()
		}
	}()
	s.tell(sema.Event{Kind: sema.EventAcquired, Weight: permit.Weight(), Wait: time.Since(start)})
	told = true
	return permit
}

// A watched is a permit of a local semaphore whose release an observer is told
// of.
type watched struct {
	sem   *Semaphore
	inner sema.Permit
	since time.Time
}

func (w *watched) Name() string { return w.sem.name }

// Release is for [sema.Lease].
func (w *watched) Release() {
	w.inner.Release()
	w.sem.tell(sema.Event{Kind: sema.EventReleased, Weight: w.inner.Weight(), Hold: time.Since(w.since)})
}

// Split is for [sema.Permit.Split].
func (w *watched) Split(n int64) (first, rest sema.Lease, err error) {
	a, b, err := w.inner.Split(n)
	if err != nil {
		return nil, nil, err
	}
	return &watched{w.sem, a, w.since}, &watched{w.sem, b, w.since}, nil
}

// Lost is for [sema.Permit.Lost].
func (w *watched) Lost() <-chan struct{} { return w.inner.Lost() }

// Err is for [sema.Permit.Err].
func (w *watched) Err() error { return w.inner.Err() }

// tellQueued tells of somebody who is about to stand in line, not of one who
// stands there: an observer that is slow holds up nobody else. It fails, untold,
// if nobody is let in.
func (s *Semaphore) tellQueued(op string, n int64) error {
	if s.options.Observer == nil {
		return nil
	}
	s.mu.Lock()
	err := s.open(op, n)
	s.mu.Unlock()
	if err == nil && n > 0 {
		s.tell(sema.Event{Kind: sema.EventQueued, Weight: n})
	}
	return err
}

func (s *Semaphore) refused(ctx context.Context, n int64, start time.Time, err error) {
	kind := sema.EventRejected
	switch {
	case errors.Is(err, sema.ErrTimeout):
		kind = sema.EventTimedOut
	case ctx != nil && ctx.Err() != nil:
		kind = sema.EventCancelled
	}
	s.tell(sema.Event{Kind: kind, Weight: n, Wait: time.Since(start), Err: err})
}

func (s *Semaphore) tell(e sema.Event) {
	if s.options.Observer == nil {
		return
	}
	e.Name = s.name
	s.mu.Lock()
	e.Waiters = s.waiting()
	s.mu.Unlock()
	if e.Kind == sema.EventQueued {
		e.Waiters++ // whom it is about
	}
	s.options.Observer.Observe(e)
}

// A telling is events that happened to nobody's goroutine. They are told in
// order, by one that is none of the client's workers, since an observer may
// close the client.
type telling struct {
	events         []sema.Event
	on             bool
	mismatchLogged bool // there is no observer, and the log has that options differ from what is stored
}

// maxUntold bounds how far an observer may lag behind.
const maxUntold = 1000

// tellLater is for who holds the mutex.
func (s *Semaphore) tellLater(e sema.Event) {
	t := &s.telling
	if s.options.Observer == nil || len(t.events) >= maxUntold && e.Kind == sema.EventRenewed {
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
	s.tell(e)
}

// tellMismatch reports a stored configuration that is not what was asked for: to
// the observer with each session, or else to the default logger, once. The mutex is
// held.
func (s *Semaphore) tellMismatch(stored protocol.Config) {
	asked := s.config
	asked.Version, asked.Draining, asked.Protocol, asked.Whole = stored.Version, stored.Draining, stored.Protocol, stored.Whole
	if asked == stored {
		return
	}
	report := fmt.Sprintf("semaphore %q was made with other options, which count: it has %s, and %s was asked for; change the options, or what is stored with Configure",
		s.name, describe(stored), describe(asked))
	s.reportMismatch(stored.Capacity, report, &s.telling.mismatchLogged)
}

// reportMismatch reports to the observer, or else to the default logger, once for each
// kind of mismatch: logged is set. The mutex is held.
func (s *Semaphore) reportMismatch(capacity int64, report string, logged *bool) {
	switch {
	case s.options.Observer != nil:
		s.tellLater(sema.Event{Kind: sema.EventMismatched, Capacity: capacity, Report: report})
	case !*logged:
		*logged = true
		go slog.Default().Warn("sema: " + report) // a slow handler must not hold the mutex
	}
}

// describe is a configuration for people.
func describe(c protocol.Config) string {
	text := fmt.Sprintf("capacity %d, TTL %v", c.Capacity, micros(c.TTL))
	if c.Kind == protocol.Rate {
		text += fmt.Sprintf(", a window of %v", micros(c.Window))
	}
	if c.Ramp > 0 {
		text += fmt.Sprintf(", a ramp of %d a second", c.Ramp)
	}
	if c.MaxWaiters > 0 {
		text += fmt.Sprintf(", %d waiters at most", c.MaxWaiters)
	}
	return text
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

// Stats is a semaphore as this process uses it.
type Stats struct {
	Capacity   int64 // of all, as last heard
	InUse      int64 // by all, as last heard
	Held       int64 // permits that are out here
	Blocks     int64 // permits that a pool has of the engine, lent out or not
	Waiters    int   // acquires that wait here
	FailedOpen bool  // the local limit rules
	Aside      int64 // permits of the local limit that are out
	Counts
}

// Counts are what has happened since the semaphore was made.
type Counts struct {
	Batches      int64 // said to the engine, signs of life included
	Failures     int64 // exchanges with the engine that brought no answer in time
	Hints        int64 // wake-ups from the engine
	Grants       int64 // leases, or blocks
	Releases     int64 // of leases, or of parts of blocks
	Moot         int64 // releases the engine had not heard of when the session was over
	Sessions     int64 // begun
	SessionsLost int64
	Panics       int64 // of the observer, when told of what happened to nobody's goroutine
}

// Stats is one snapshot.
func (s *Semaphore) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{
		Capacity: s.capacity.Load(), InUse: s.inUse.Load(), Held: s.held(), Waiters: s.waiting(), FailedOpen: s.fallback.rules(), Counts: s.counts,
	}
	for _, g := range s.pool.generations() {
		stats.Blocks += g.held
	}
	stats.Aside = s.fallback.stats().InUse
	return stats
}
