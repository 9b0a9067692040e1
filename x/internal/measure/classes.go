package measure

import (
	"cmp"
	"iter"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/group"
)

// defaultClass stands for the class without a name.
const defaultClass = "default"

// The classes of a gate have series of their own up to a bound. The first ones have them for
// as long as the gate is exported: series that come and go would make counters restart.
type classes struct {
	names map[string]bool // guarded by Set.mu
	free  int             // classes that are not declared and may still be added; guarded by Set.mu
	tally *classTally     // nil: the gate had no classes so far; guarded by Set.collecting
}

// classesLocked returns the classes of a gate.
func (s *Set) classesLocked(as label) *classes {
	if s.classes[as] == nil {
		s.classes[as] = &classes{names: map[string]bool{}, free: s.config.MaxClasses}
	}
	return s.classes[as]
}

// classLocked returns the class under which a class of a gate is exported: itself, or Other.
func (s *Set) classLocked(as label, class string) string {
	c := s.classesLocked(as)
	switch {
	case c.names[class]:
	case s.declared[class]:
		c.names[class] = true
	case c.free > 0:
		c.free--
		c.names[class] = true
	default:
		return Other
	}
	return class
}

// class returns the class under which a class of a gate is exported.
func (s *Set) class(as label, class string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.classLocked(as, class)
}

// counts are the counters of a class that are exported.
type counts struct {
	sema.Counts
	shed map[admit.Reason]int64
}

// A classState is the state of a class when it was collected.
type classState struct {
	sema.Stats
	queuedFor time.Duration
	shed      map[admit.Reason]int64
	hasAge    bool // queuedFor is known
}

// A classTally adds up the counters of the classes of a gate. A class that is idle is
// forgotten by its gate, and starts at 0 when it is used again; its series continues.
type classTally struct {
	last  map[string]counts // by class, of those that have series of their own
	total map[string]counts
	other counts // highest so far, since the two readings that it is computed from differ in time
}

// classes adds the classes of the gate.
func (c *collector) classes() {
	switch g := c.limit.Gate.(type) {
	case *admit.Controller:
		st, _ := c.limit.Details.(admit.Stats)
		c.set.collectClasses(c.as, func(yield func(string, classState) bool) {
			for name, k := range g.Classes() {
				if !yield(cmp.Or(name, defaultClass), classState{Stats: k.Stats, shed: k.Shed}) {
					return
				}
			}
		}, classState{Stats: c.limit.Stats, shed: st.Shed}, c.yield)
	default:
		c.set.collectClasses(c.as, func(yield func(string, classState) bool) {
			for name, k := range c.limit.Classes() {
				if !yield(cmp.Or(name, defaultClass), classState{Stats: k.Stats, queuedFor: k.QueuedFor, hasAge: true}) {
					return
				}
			}
		}, classState{Stats: c.limit.Stats}, c.yield)
	}
}

// collectClasses yields the samples of classes. What exceeds the bound goes to one class
// Other, whose counters are those of the whole without those of the others.
func (s *Set) collectClasses(as label, all iter.Seq2[string, classState], whole classState, yield func(Sample)) {
	s.mu.Lock()
	of := s.classesLocked(as)
	s.mu.Unlock()
	t := of.tally
	var other classState
	otherClasses := 0
	seen := map[string]bool{}
	for name, st := range all {
		if t == nil {
			t = &classTally{map[string]counts{}, map[string]counts{}, counts{shed: map[admit.Reason]int64{}}}
			of.tally = t
		}
		if name = clean(name); seen[name] || s.class(as, name) == Other {
			otherClasses++
			other.InUse += st.InUse
			other.Waiters += st.Waiters
			other.queuedFor = max(other.queuedFor, st.queuedFor)
			other.hasAge = other.hasAge || st.hasAge
			continue
		}
		seen[name] = true
		now := t.update(name, counts{st.Counts, st.shed})
		s.addClass(as, name, &st, now, yield)
		s.noteAcquired(as, name, now.Acquired)
	}
	if t == nil {
		return
	}
	for name := range t.last {
		if !seen[name] { // idle, and forgotten by the gate
			t.last[name] = counts{}
			s.addClass(as, name, &classState{}, t.total[name], yield)
		}
	}
	if otherClasses > 0 || t.other.Acquired > 0 {
		s.folds[foldClass].Add(int64(otherClasses))
		s.addClass(as, Other, &other, t.rest(counts{whole.Counts, whole.shed}), yield)
		s.noteAcquired(as, Other, t.other.Acquired)
	}
}

// update returns the sums of the counters of a class.
func (t *classTally) update(name string, now counts) counts {
	last, sum := t.last[name], t.total[name]
	if now.Acquired < last.Acquired || now.Waited < last.Waited || now.Rejected < last.Rejected {
		last = counts{} // it was forgotten and created again
	}
	t.last[name] = now
	sum.Acquired += now.Acquired - last.Acquired
	sum.Waited += now.Waited - last.Waited
	sum.TimedOut += max(0, now.TimedOut-last.TimedOut)
	sum.Cancelled += max(0, now.Cancelled-last.Cancelled)
	sum.Rejected += now.Rejected - last.Rejected
	sum.WaitTime += max(0, now.WaitTime-last.WaitTime)
	shed := map[admit.Reason]int64{}
	for reason, n := range sum.shed {
		shed[reason] = n
	}
	for reason, n := range now.shed {
		shed[reason] += max(0, n-last.shed[reason])
	}
	if now.shed != nil {
		sum.shed = shed
	}
	t.total[name] = sum
	return sum
}

// rest returns the counters of the whole without those of the classes.
func (t *classTally) rest(whole counts) counts {
	for _, c := range t.total {
		whole.Acquired -= c.Acquired
		whole.TimedOut -= c.TimedOut
		whole.Cancelled -= c.Cancelled
		whole.Rejected -= c.Rejected
		whole.WaitTime -= c.WaitTime
	}
	o := &t.other
	o.Acquired = max(o.Acquired, whole.Acquired)
	o.TimedOut = max(o.TimedOut, whole.TimedOut)
	o.Cancelled = max(o.Cancelled, whole.Cancelled)
	o.Rejected = max(o.Rejected, whole.Rejected)
	o.WaitTime = max(o.WaitTime, whole.WaitTime)
	for reason, n := range whole.shed {
		for _, c := range t.total {
			n -= c.shed[reason]
		}
		o.shed[reason] = max(o.shed[reason], n)
	}
	return *o
}

// addClass adds the samples of one class.
func (s *Set) addClass(as label, name string, st *classState, sum counts, yield func(Sample)) {
	add := func(d *Desc, value float64, labels ...string) {
		yield(Sample{d, append([]string{as.backend, as.name, name}, labels...), value})
	}
	if st.Capacity > 0 && st.Capacity < sema.MaxCapacity {
		add(classCapacity, float64(st.Capacity))
	}
	add(classInUse, float64(st.InUse))
	add(classWaiters, float64(st.Waiters))
	if st.hasAge {
		add(classHeadAge, st.queuedFor.Seconds())
	}
	add(classAcquires, float64(sum.Acquired), resultNames[resultAcquired])
	add(classAcquires, float64(sum.TimedOut), resultNames[resultTimeout])
	add(classAcquires, float64(sum.Cancelled), resultNames[resultCanceled])
	add(classAcquires, float64(sum.Rejected), resultNames[resultRejected])
	add(classWaitTime, sum.WaitTime.Seconds())
	for _, reason := range admit.Reasons() {
		if n := sum.shed[reason]; n > 0 {
			add(classSheds, float64(n), reason.String())
		}
	}
}

// keyAge returns how long the oldest waiter of a key has waited, or of all keys that share
// its series. It reports false if the key is not observed.
func (s *Set) keyAge(as label, key string) (time.Duration, bool) {
	s.mu.Lock()
	series := s.list[labels{as.backend, as.name, s.classLocked(as, clean(key))}]
	s.mu.Unlock()
	if series == nil {
		return 0, false
	}
	return series.headAge(), true
}

// keyed is a group of semaphores by key. Its keys are exported as classes.
type keyed struct {
	keys *group.Keyed
	last map[string]counts // of the keys at the last collection; guarded by Set.collecting
	sum  sema.Counts       // of all keys, without what keys counted between a collection and their end
}

// collectKeys yields the samples of a group of semaphores by key.
func (s *Set) collectKeys(as label, k *keyed, yield func(Sample)) {
	live := map[string]classState{}
	var whole sema.Stats
	last := make(map[string]counts, len(k.last))
	for key, semaphore := range k.keys.All() {
		st := semaphore.Stats()
		age, observed := s.keyAge(as, key)
		live[key] = classState{Stats: st, queuedFor: age, hasAge: observed}
		last[key] = counts{Counts: st.Counts}
		whole.InUse += st.InUse
		whole.Waiters += st.Waiters
		before := k.last[key]
		if st.Acquired < before.Acquired || st.Waited < before.Waited || st.Rejected < before.Rejected {
			before = counts{}
		}
		k.sum.Acquired += st.Acquired - before.Acquired
		k.sum.Waited += st.Waited - before.Waited
		k.sum.Rejected += st.Rejected - before.Rejected
		k.sum.TimedOut += max(0, st.TimedOut-before.TimedOut)
		k.sum.Cancelled += max(0, st.Cancelled-before.Cancelled)
		k.sum.WaitTime += max(0, st.WaitTime-before.WaitTime)
	}
	k.last, whole.Counts = last, k.sum
	add := func(d *Desc, value float64, labels ...string) {
		yield(Sample{d, append([]string{as.backend, as.name}, labels...), value})
	}
	add(inUse, float64(whole.InUse))
	add(waiters, float64(whole.Waiters))
	for i, n := range []int64{whole.Acquired, whole.TimedOut, whole.Cancelled, whole.Rejected} {
		add(acquires, float64(n), resultNames[i])
	}
	add(waits, float64(whole.Waited))
	add(waitSeconds, whole.WaitTime.Seconds())
	s.noteAcquired(as, "", whole.Acquired)
	s.collectClasses(as, func(yield func(string, classState) bool) {
		for key, st := range live {
			if !yield(key, st) {
				return
			}
		}
	}, classState{Stats: whole}, yield)
}
