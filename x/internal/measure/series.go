package measure

import (
	"container/list"
	"context"
	"maps"
	"slices"
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

	undeclared bool // one of Config.MaxNames; guarded by Set.mu
	results    [len(resultNames)]atomic.Int64
	reasons    [len(reasonNames)]atomic.Int64
	reports    [len(reportKinds)]atomic.Int64

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
	to := s.targetOf(e.Name, "")
	to.series.observe(&e)
	switch {
	case to.whole != nil:
		to.whole.observe(&e)
	case e.Class != "" && to.series.Semaphore != Other:
		s.targetOf(e.Name, e.Class).series.observe(&e)
	}
}

// ObserveWait implements [sema.WaitObserver]. It lists the wait, for the age of the head of
// the queue.
func (s *Set) ObserveWait(_ context.Context, queued sema.Event) func(sema.Event) {
	to := s.targetOf(queued.Name, "")
	end := to.series.wait()
	if to.whole == nil {
		return func(sema.Event) { end() }
	}
	endWhole := to.whole.wait()
	return func(sema.Event) {
		end()
		endWhole()
	}
}

// wait lists a wait that begins. It ends when the function that it returns is called.
func (s *Series) wait() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.queue.PushBack(monotonic.Since())
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queue.Remove(entry)
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

// A target is where events with a name and a class go.
type target struct {
	series *Series
	whole  *Series // of the group, for the semaphore of a key; nil: none
}

// targetOf returns the target of the events with these names.
func (s *Set) targetOf(name, class string) target {
	if found, ok := s.series.Load(key{name, class}); ok {
		return *found.(*target)
	}
	as, registered := s.registered(name)
	clash := !registered && s.taken(label{clean(name), backendProcess})
	s.mu.Lock()
	defer s.mu.Unlock()
	if of, k, ok := s.keyOfLocked(name); ok {
		return s.targetOfKeyLocked(name, of, k)
	}
	if !registered {
		as = label{clean(name), backendProcess}
		if clash = clash || s.keyed[name] != nil; clash {
			s.clashed[as] = true
		}
		if clash || !s.takeNameLocked(as) {
			s.folds[foldName].Add(1)
			return target{series: s.getLocked(rest, "")}
		}
	}
	shown := class
	if class != "" {
		if shown = s.classLocked(as, clean(class)); shown == Other {
			s.folds[foldClass].Add(1)
			return target{series: s.getLocked(as, Other)} // not stored by its name, of which there may be any number
		}
	}
	found := &target{series: s.getLocked(as, shown)}
	s.series.Store(key{name, class}, found)
	return *found
}

// targetOfKeyLocked returns the target of key k of the group of semaphores that is exported
// as of. The name in its events is name.
func (s *Set) targetOfKeyLocked(name, of, k string) target {
	as := label{of, backendProcess}
	shown := s.classLocked(as, clean(k))
	found := &target{s.getLocked(as, shown), s.getLocked(as, "")}
	if shown != Other {
		s.series.Store(key{name, ""}, found)
	} else {
		s.folds[foldClass].Add(1)
	}
	return *found
}

// takeNameLocked reports whether a name that is not registered has series of its own.
func (s *Set) takeNameLocked(as label) bool {
	whole := s.list[labels{as.backend, as.name, ""}]
	switch {
	case s.declared[as.name], whole != nil && whole.undeclared:
		return true
	case s.undeclared >= s.config.MaxNames:
		return false
	}
	s.getLocked(as, "").undeclared = true
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

// Series returns all series of events.
func (s *Set) Series() []*Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.list))
}
