package sema

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// A Monitor reports what happens at a gate, as its options request. It sends events to
// observers, and records held permits and waits for the diagnostics of this package. A
// user's own gate that uses a Monitor gets [Holders], the pprof profiles, and the
// reports of leaks, overlong holds and deadlocks, like a [Semaphore].
//
// A nil Monitor is valid: it reports nothing and costs nothing. An acquire is
//
//	w := monitor.Begin(ctx, n)
//	… w.Queued()                       // before the caller joins the queue
//	return w.Granted(&issuer), nil     // or
//	return sema.Permit{}, w.Failed(err)
//
// All of these run observers, and call the gate's method Stats if it has one. The
// caller must hold no lock of the gate.
type Monitor struct {
	name  string
	class string                     // class of the gate, see ForClass; "": none
	core  *core                      // of a Semaphore or a Counter; nil: another gate
	stats interface{ Stats() Stats } // nil: the gate has none

	signals bool     // callers wait for a signal, see ForSignals
	whole   *Monitor // of the gate that this one is a part of, see ForPart; nil: itself

	reports
	traces    bool        // acquires may need a trace
	samples   uint64      // see sampleLimit; 0: all events are reported
	exhausted atomic.Bool // the last reported state
}

// reports are the reports that options request of a Monitor.
type reports struct {
	observers []Observer
	level     DiagnoseLevel
	warnHold  time.Duration
	reclaim   bool
	sites     bool
}

// NewMonitor returns a monitor for gate with these options, or nil if they request no
// reports. The option [Name] sets the name of the gate. NewMonitor panics if gate is
// nil.
func NewMonitor(gate Gate, opts ...SharedOption) *Monitor {
	if gate == nil {
		panic("sema: NewMonitor(nil): want a gate")
	}
	conf := newConfig(opts)
	m := conf.newMonitor()
	if m != nil {
		m.stats, _ = gate.(interface{ Stats() Stats })
	}
	return m
}

// newMonitor returns a monitor whose gate is not set yet, or nil if the options
// request no reports.
func (c *config) newMonitor() *Monitor {
	r := c.reports
	if len(r.observers) == 0 && r.level == DiagnoseOff && r.warnHold == 0 {
		return nil
	}
	if len(r.observers) == 0 { // without observers, reports go to the log
		r.observers = []Observer{defaultLog}
	}
	m := &Monitor{name: c.Name, reports: r, traces: r.level > DiagnoseOff || r.warnHold > 0 || r.sites}
	if !m.traces {
		m.samples = sampleLimit(r.observers)
	}
	return m
}

// ForClass returns a monitor for one class of a gate, such as a tenant. The argument
// gate is that class as a [Gate]. Its events carry the class in addition to the name of
// m. The result is nil if m is nil.
func (m *Monitor) ForClass(gate Gate, class string) *Monitor {
	if m == nil {
		return nil
	}
	child := &Monitor{name: m.name, class: class, reports: m.reports, traces: m.traces, samples: m.samples}
	child.stats, _ = gate.(interface{ Stats() Stats })
	return child
}

// ForPart returns a monitor for one of the ways to acquire a gate, such as the readers of a
// lock. The argument gate is that way as a [Gate], and class is the class of its events. In
// contrast to ForClass, callers of all parts wait for the permits of all others. So the
// deadlock audit treats the parts as one gate, with the state of the gate of m. The result
// is nil if m is nil.
func (m *Monitor) ForPart(gate Gate, class string) *Monitor {
	part := m.ForClass(gate, class)
	if part != nil {
		part.whole = m
	}
	return part
}

// ForSignals returns a monitor like ForClass, for callers that wait for a signal of
// another goroutine: an item in a queue, a partner, a phase. To be empty is the normal
// state of such a gate, and its permits are not held. So no exhaustion is reported, and no
// deadlock.
func (m *Monitor) ForSignals(gate Gate, class string) *Monitor {
	child := m.ForClass(gate, class)
	if child != nil {
		child.signals = true
	}
	return child
}

// audited returns the monitor that represents the gate in the deadlock audit. It is nil if
// m is nil.
func (m *Monitor) audited() *Monitor {
	if m != nil && m.whole != nil {
		return m.whole
	}
	return m
}

// waiters returns the number of queued callers.
func (m *Monitor) waiters() int {
	switch {
	case m.core != nil:
		return m.core.waiters()
	case m.stats != nil:
		return m.stats.Stats().Waiters
	}
	return 0
}

// inUse returns the number of permits held, if it is known.
func (m *Monitor) inUse() (n int64, known bool) {
	if m.stats == nil {
		return 0, false
	}
	return m.stats.Stats().InUse, true
}

// isExhausted reports whether nothing is free or a caller waits.
func (m *Monitor) isExhausted() bool {
	switch {
	case m.core != nil:
		return m.core.exhausted()
	case m.stats != nil:
		st := m.stats.Stats()
		return st.Free <= 0 || st.Waiters > 0
	}
	return false
}

// Report sends an event to the observers. It sets the name and class of the gate, and
// adds the gate's waiters to e.Waiters. The caller must hold no lock that an observer
// might need.
func (m *Monitor) Report(e Event) {
	if m != nil {
		m.report(&e)
	}
}

// report does the work of Report. It takes a pointer because an Event has 128 bytes, and
// returns it.
func (m *Monitor) report(e *Event) *Event {
	e.Name, e.Class = m.name, m.class
	e.Waiters += m.waiters() // e.Waiters is 1 for a caller that is about to wait, else 0
	for _, o := range m.observers {
		o.Observe(*e)
	}
	return e
}

// A Wait is one acquire under observation, from [Monitor.Begin] to Granted or Failed.
// It is passed by pointer within a package and never shared.
type Wait struct {
	m      *Monitor
	ctx    context.Context
	weight int64
	start  int64       // of the wait, since epoch; 0: the caller has not waited
	trace  *trace      // nil unless the monitor traces acquires
	ended  func(Event) // of the observers that follow waits; nil: none
}

// A trace is what is known of a caller at a gate with diagnostics or call sites.
type trace struct {
	stack    stack
	caller   identity
	record   bool
	queued   *queuedWait // entry in the list of waits; nil: not listed
	detached bool        // a Ticket: no goroutine waits, and any may end the wait
}

// Begin starts the observation of a caller that requests n permits and may wait.
func (m *Monitor) Begin(ctx context.Context, n int64) Wait {
	w := Wait{m: m, ctx: ctx, weight: n}
	if m != nil && m.traces {
		w.trace = m.trace(ctx)
		m.auditOrder(&w)
	}
	return w
}

// BeginTry starts the observation of a caller that does not wait. Such a caller is
// exempt from the acquire-order audit.
func (m *Monitor) BeginTry(ctx context.Context, n int64) Wait {
	w := Wait{m: m, ctx: ctx, weight: n}
	if m != nil && m.traces {
		w.trace = m.trace(ctx)
	}
	return w
}

func (m *Monitor) trace(ctx context.Context) *trace {
	t := &trace{record: m.level == DiagnoseFull || m.warnHold > 0 || m.level == DiagnoseSampled && rand.Uint32()%sampleEvery == 0}
	if t.record || m.sites {
		t.stack = callers()
	}
	if m.level > DiagnoseOff {
		t.caller = m.identify(ctx)
	}
	return t
}

// site returns the call site of the caller, or "" if it is unknown.
func (w *Wait) site() string {
	if w.trace == nil {
		return ""
	}
	return w.trace.stack.site()
}

// Queued reports that the caller is about to wait. Call it before the caller joins the
// queue: observers may be slow or panic, and no waiter should depend on a goroutine
// that runs them.
func (w *Wait) Queued() {
	m := w.m
	if m == nil {
		return
	}
	w.start = sinceEpoch()
	w.follow(m.report(&Event{Kind: EventQueued, Weight: w.weight, Site: w.site(), Waiters: 1}))
	if !m.signals && m.samples == 0 && m.exhausted.CompareAndSwap(false, true) {
		m.report(&Event{Kind: EventExhausted, Waiters: 1})
	}
	if t := w.trace; t != nil && t.record {
		t.queued = recorded.startWait(w)
	}
}

// endWait removes the caller from the list of waits.
func (w *Wait) endWait() {
	t := w.trace
	if t == nil || t.queued == nil {
		return
	}
	recorded.endWait(t.queued)
	t.queued = nil
	if t.detached {
		contention.addToSite(t.stack, w.waited(), w.m.sampleWeight())
	} else {
		contention.add(t.stack, w.waited(), w.m.sampleWeight())
	}
}

func (w *Wait) waited() time.Duration {
	if w.start == 0 {
		return 0
	}
	return time.Duration(sinceEpoch() - w.start)
}

// Granted issues the permit that the gate has granted, and reports it. If an observer
// panics, the permit is released.
func (w *Wait) Granted(i *Issuer) Permit {
	if w.m == nil {
		return i.Permit(w.weight)
	}
	w.endWait()
	var p Permit
	switch {
	case w.m.samples != 0:
		var sampled bool
		if p, sampled = w.m.permit(i, w.weight); !sampled && w.start == 0 {
			return p
		}
	case w.trace != nil && w.trace.record:
		p = newRecord(w, i).permit(w.weight)
		i.unslotted.Add(1)
	default:
		p = i.permitSince(w.weight, sinceEpoch())
	}
	w.issued(p)
	return p
}

// issue issues and reports a permit like Granted, for a caller that did not wait and
// needs no trace.
//
// issue and takeBack are all that an observed pair costs beyond reading the clock.
// Their events are local variables, because passing one on copies it once more. They
// are filled in before an atomic operation. A copy that reads a variable in larger
// pieces than those in which it was just written stalls the processor: store-to-load
// forwarding fails until the writes reach the cache. The atomic operation waits for
// that anyway.
func (m *Monitor) issue(i *Issuer, n int64) Permit {
	if m.samples != 0 {
		p, sampled := m.permit(i, n)
		if sampled {
			w := Wait{m: m, weight: n}
			w.issued(p)
		}
		return p
	}
	e := Event{Kind: EventAcquired, Name: m.name, Class: m.class, Weight: n}
	p := i.permitSince(n, sinceEpoch())
	reported := false
	defer func() {
		if !reported {
			p.Release()
		}
	}()
	if c := m.core; c == nil || c.queue.occupied.Load() {
		e.Waiters = m.waiters()
	}
	for _, o := range m.observers {
		if f, ok := o.(ObserverFunc); ok {
			f(e) // avoids the copy for the call of Observe
		} else {
			o.Observe(e)
		}
	}
	m.reportTransition()
	reported = true
	return p
}

// takeBack returns a permit to its owner and reports its release. since is the time of
// its acquire, counted from epoch.
func (m *Monitor) takeBack(i *Issuer, n, since int64) {
	e := Event{Kind: EventReleased, Name: m.name, Class: m.class, Weight: n, Hold: time.Duration(sinceEpoch() - since)}
	i.owner.TakeBack(n)
	if c := m.core; c == nil || c.queue.occupied.Load() {
		e.Waiters = m.waiters()
	}
	for _, o := range m.observers {
		if f, ok := o.(ObserverFunc); ok {
			f(e)
		} else {
			o.Observe(e)
		}
	}
	m.reportTransition()
}

// issued reports a new permit, and releases it if an observer panics.
func (w *Wait) issued(p Permit) {
	reported := false
	defer func() {
		if !reported {
			p.Release()
		}
	}()
	w.report(&Event{Kind: EventAcquired, Weight: w.weight, Wait: w.waited(), Site: w.site()})
	w.m.reportTransition()
	reported = true
}

// report reports the end of an acquire.
func (w *Wait) report(e *Event) {
	if w.ended != nil { // even if an observer panics
		defer func() { w.ended(*e) }()
	}
	w.m.report(e)
}

// lowered reports a grant like Granted, for a Counter, which issues no permit.
func (w *Wait) lowered(n int64) {
	if w.m != nil && (w.m.samples == 0 || w.start != 0) {
		w.endWait()
		w.report(&Event{Kind: EventAcquired, Weight: n, Wait: w.waited(), Site: w.site()})
	}
}

// Failed reports why the caller gets no permit, and returns err.
func (w *Wait) Failed(err error) error {
	m := w.m
	if m == nil {
		return err
	}
	w.endWait()
	kind := EventRejected
	switch {
	case errors.Is(err, ErrTimeout):
		kind = EventTimedOut
	case w.ctx != nil && w.ctx.Err() != nil && errors.Is(err, context.Cause(w.ctx)): // == panics on some types
		kind = EventCancelled
	}
	w.report(&Event{Kind: kind, Weight: w.weight, Wait: w.waited(), Site: w.site(), Err: err})
	m.reportTransition()
	return err
}

// released reports the release of a permit that has a record.
func (m *Monitor) released(n int64, hold time.Duration, site string) {
	m.report(&Event{Kind: EventReleased, Weight: n, Hold: hold, Site: site})
	m.reportTransition()
}

// reportTransition sends an event if the gate became exhausted or recovered since the
// last such event.
func (m *Monitor) reportTransition() {
	if c := m.core; c != nil && !c.queue.occupied.Load() && (c.free() == 0) == m.exhausted.Load() {
		return // the common case, decided without another call
	}
	if !m.signals && m.samples == 0 {
		m.reportTransitionTo(m.isExhausted())
	}
}

// reportTransitionTo reports a change to the given state. Then it checks again: a
// caller that changed the state back during the report found the flag not yet updated.
func (m *Monitor) reportTransitionTo(exhausted bool) {
	for m.exhausted.Load() != exhausted && m.exhausted.CompareAndSwap(!exhausted, exhausted) {
		kind := EventRecovered
		if exhausted {
			kind = EventExhausted
		}
		m.Report(Event{Kind: kind})
		exhausted = m.isExhausted()
	}
}

// resized reports the new capacity of a semaphore.
func (m *Monitor) resized(capacity int64) {
	if m != nil {
		m.Report(Event{Kind: EventResized, Capacity: capacity})
		m.reportTransition()
	}
}
