package measure

import (
	"container/list"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/monotonic"
)

// A Series is what the events of one gate, or one class of it, add up to.
type Series struct {
	Backend, Semaphore string
	Class              string // "": of the whole gate
	Recorder           Recorder

	whole   *Series // of the gate, for the semaphore of a key; nil: itself, or fed by the observed events as well
	counted bool    // by Stats of a registered gate; guarded by Set.mu
	results [len(resultNames)]atomic.Int64
	reasons [len(reasonNames)]atomic.Int64
	reports [len(reportKinds)]atomic.Int64

	granted atomic.Int64 // acquires granted, from Stats; -1: unknown

	mu     sync.Mutex // guards the fields below
	atOnce atOnce
	queue  list.List // of start times, relative to the epoch of package monotonic; the oldest first
}

// The results of acquires.
const (
	resultAcquired = iota
	resultTimeout
	resultCanceled
	resultRejected
	resultError
)

var resultNames = [...]string{"acquired", "timeout", "canceled", "rejected", "error"}

// Acquired is the result of acquires that were granted.
const Acquired = "acquired"

// Results returns the results of acquires.
func Results() []string { return resultNames[:] }

// ResultOf returns the result of an acquire from the event that ended it.
func ResultOf(e *sema.Event) string { return resultNames[resultOf(e)] }

func resultOf(e *sema.Event) int {
	switch e.Kind {
	case sema.EventAcquired:
		return resultAcquired
	case sema.EventTimedOut:
		return resultTimeout
	case sema.EventCancelled:
		return resultCanceled
	}
	if _, reason := reasonIndex(e.Err); isError(reason) {
		return resultError
	}
	return resultRejected
}

// reasonNames are the reasons that have series of their own. A gate of the user may return
// any other word.
var reasonNames = [...]string{
	"full", "queue-full", "too-large", "draining", "closed", "unavailable", "invalid", "lost", "rate", "breaker",
	"shedding", "deadline", "class-rate", "budget", "overloaded", "timeout", Other,
}

// commonReasons is the number of reasons, from the first, that any gate may have.
const commonReasons = 6

// isError reports whether a reason is a fault instead of a limit.
func isError(reason string) bool {
	switch reason {
	case "unavailable", "invalid", "lost", Other:
		return true
	}
	return false
}

// reportKinds are the events that sema_diagnostics_total counts.
var reportKinds = [...]struct {
	kind sema.EventKind
	name string
}{
	{sema.EventLeaked, "leaked"}, {sema.EventOverheld, "overheld"}, {sema.EventOverReleased, "over-released"}, {sema.EventInverted, "inverted"},
	{sema.EventDeadlocked, "deadlocked"}, {sema.EventMismatched, "mismatched"}, {sema.EventFailedOpen, "failed-open"},
}

// SampleEvery implements [sema.Sampler].
func (s *Set) SampleEvery() int { return s.config.HoldEvery }

// Observe implements [sema.Observer].
func (s *Set) Observe(e sema.Event) {
	switch e.Kind {
	case sema.EventQueued, sema.EventExhausted, sema.EventRecovered, sema.EventResized, sema.EventRenewed:
		return
	}
	first := s.seriesOf(e.Name, "")
	first.observe(&e)
	switch {
	case first.whole != nil:
		first.whole.observe(&e)
	case e.Class != "" && first.Semaphore != Other:
		s.seriesOf(e.Name, e.Class).observe(&e)
	}
}

// ObserveWait implements [sema.WaitObserver]. It lists the wait, for the age of the head of
// the queue.
func (s *Set) ObserveWait(_ context.Context, queued sema.Event) func(sema.Event) {
	series := s.seriesOf(queued.Name, "")
	series.mu.Lock()
	entry := series.queue.PushBack(monotonic.Since())
	series.mu.Unlock()
	return func(sema.Event) {
		series.mu.Lock()
		series.queue.Remove(entry)
		series.mu.Unlock()
	}
}

// headAge returns how long the oldest waiter has waited.
func (s *Series) headAge() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if oldest := s.queue.Front(); oldest != nil {
		return monotonic.Since() - oldest.Value.(time.Duration)
	}
	return 0
}

// GrantedAtOnce returns how many acquires were granted without waiting, given how many that
// waited were recorded. It reports false if that is unknown, because Stats does not count
// the acquires of the series.
func (s *Series) GrantedAtOnce(waited int64) (int64, bool) {
	granted := s.granted.Load()
	if granted < 0 {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.atOnce.update(granted, waited), true
}

func (s *Series) observe(e *sema.Event) {
	switch e.Kind {
	case sema.EventAcquired, sema.EventTimedOut, sema.EventCancelled:
		s.ended(e)
	case sema.EventRejected:
		i, _ := reasonIndex(e.Err)
		s.reasons[i].Add(1)
		s.ended(e)
	case sema.EventReleased:
		if e.Hold > 0 {
			s.Recorder.Held(e.Hold.Seconds())
		}
	default:
		for i := range reportKinds {
			if reportKinds[i].kind == e.Kind {
				s.reports[i].Add(1)
			}
		}
	}
}

// ended counts an acquire that has ended, and records its wait if it waited.
func (s *Series) ended(e *sema.Event) {
	result := resultOf(e)
	s.results[result].Add(1)
	if e.Wait > 0 {
		s.Recorder.Waited(resultNames[result], e.Wait.Seconds())
	}
}

func reasonIndex(err error) (int, string) {
	reason := sema.Reason(err)
	for i, name := range reasonNames {
		if name == reason {
			return i, name
		}
	}
	return len(reasonNames) - 1, Other
}

// A key identifies a series by the names in events.
type key struct{ name, class string }

// The labels of a series.
type labels struct{ backend, semaphore, class string }

// A classBound bounds the classes of a gate that have series of their own. The first ones
// have them, for good: series that come and go would make counters restart.
type classBound struct {
	names map[string]bool
	free  int // classes that are not declared and may still be added
}

// seriesOf returns the series of the events with these names.
func (s *Set) seriesOf(name, class string) *Series {
	if found, ok := s.series.Load(key{name, class}); ok {
		return found.(*Series)
	}
	s.refreshKnown(time.Second)
	s.noteRegistered(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if of, k, ok := s.ofKeyedLocked(name); ok {
		return s.ofKeyLocked(name, of, k)
	}
	as, counted := s.known[name]
	if !counted {
		as = label{clean(name), backendProcess}
		if !s.takeNameLocked(as.name) {
			s.folds[foldName].Add(1)
			return s.getLocked(label{Other, backendProcess}, "")
		}
	}
	shown := class
	if class != "" {
		if shown = s.classLocked(as.name, clean(class)); shown == Other {
			s.folds[foldClass].Add(1)
			return s.getLocked(as, Other) // not stored by its name, of which there may be any number
		}
	}
	found := s.getLocked(as, shown)
	found.counted = counted
	s.series.Store(key{name, class}, found)
	return found
}

// ofKeyLocked returns the series of key k of the group of semaphores that is exported as of.
// The name in its events is name.
func (s *Set) ofKeyLocked(name, of, k string) *Series {
	as := label{of, backendProcess}
	shown := s.classLocked(of, clean(k))
	found := s.getLocked(as, shown)
	found.counted, found.whole = true, s.getLocked(as, "")
	found.whole.counted = true
	if shown != Other {
		s.series.Store(key{name, ""}, found)
	} else {
		s.folds[foldClass].Add(1)
	}
	return found
}

// clean returns a name as the value of a label, which must be UTF-8.
func clean(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// takeNameLocked reports whether a name that is not registered has series of its own.
func (s *Set) takeNameLocked(name string) bool {
	switch {
	case s.list[labels{backendProcess, name, ""}] != nil, s.declared[name]:
		return true
	case s.undeclared >= s.config.MaxNames:
		return false
	}
	s.undeclared++
	return true
}

// getLocked returns the series with these labels, and creates it if there is none.
func (s *Set) getLocked(as label, class string) *Series {
	k := labels{as.backend, as.name, class}
	if s.list[k] == nil {
		n := &Series{Backend: as.backend, Semaphore: as.name, Class: class}
		n.granted.Store(-1)
		n.Recorder = s.record(n)
		s.list[k] = n
	}
	return s.list[k]
}

// class returns the class under which a class of a gate is exported: itself, or Other.
func (s *Set) class(semaphore, class string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.classLocked(semaphore, class)
}

func (s *Set) classLocked(semaphore, class string) string {
	b := s.classes[semaphore]
	if b == nil {
		b = &classBound{names: map[string]bool{}, free: s.config.MaxClasses}
		s.classes[semaphore] = b
	}
	switch {
	case b.names[class]:
	case s.declared[class]:
		b.names[class] = true
	case b.free > 0:
		b.free--
		b.names[class] = true
	default:
		return Other
	}
	return class
}

// ofKeyedLocked returns the name and the key of the semaphore of a key.
func (s *Set) ofKeyedLocked(name string) (of, k string, ok bool) {
	for of := range s.keyed {
		if rest, found := strings.CutPrefix(name, of+"/"); found {
			return of, rest, true
		}
	}
	return "", "", false
}

// Series returns all series of events.
func (s *Set) Series() []*Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.list))
}
