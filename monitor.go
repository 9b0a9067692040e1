package sema

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// A Monitor reports what happens at a gate, as its options ask: events to
// observers, and to the diagnostics of this package what is held and waited for.
// Every gate of one's own that uses one has [Holders], the pprof profiles, leak,
// over-hold and deadlock reports as a [Semaphore] has them.
//
// A nil Monitor is valid: it reports nothing and costs nothing. An acquire is
//
//	w := monitor.Begin(ctx, n)
//	… w.Queued()                       // before the caller joins the queue
//	return w.Granted(&issuer), nil     // or
//	return sema.Permit{}, w.Failed(err)
//
// All of these run observers, and call the gate's method Stats if it has one: no lock
// of the gate may be held.
type Monitor struct {
	name  string
	class string                     // of the gate, see ForClass
	core  *core                      // of a Semaphore or a Counter
	stats interface{ Stats() Stats } // nil if the gate has none

	signals bool // a Counter: nothing is held, and it is empty as a rule

	reports
	traces    bool        // some acquires need a trace
	exhausted atomic.Bool // what was last reported
}

// reports is what options ask a Monitor to report.
type reports struct {
	observers []Observer
	level     DiagnoseLevel
	warnHold  time.Duration
	reclaim   bool
	sites     bool
}

// NewMonitor returns what reports on gate as the options ask, or nil if they ask
// for nothing. The name is that of the option [Name].
func NewMonitor(gate Gate, opts ...SharedOption) *Monitor {
	if gate == nil {
		panic("sema: NewMonitor(nil): want the gate to report on")
	}
	conf := newConfig(opts)
	m := conf.newMonitor()
	if m != nil {
		m.stats, _ = gate.(interface{ Stats() Stats })
	}
	return m
}

// newMonitor returns a monitor that knows nothing of its gate yet, or nil if the
// options ask for none.
func (c *config) newMonitor() *Monitor {
	r := c.reports
	if len(r.observers) == 0 && r.level == DiagnoseOff && r.warnHold == 0 {
		return nil
	}
	if len(r.observers) == 0 { // what no observer receives goes to the log
		r.observers = []Observer{defaultLog}
	}
	return &Monitor{name: c.Name, reports: r, traces: r.level > DiagnoseOff || r.warnHold > 0 || r.sites}
}

// ForClass returns a monitor for one class of a gate, such as a tenant: gate is the
// class, and its events carry the class besides the name of m. It is nil if m is.
func (m *Monitor) ForClass(gate Gate, class string) *Monitor {
	if m == nil {
		return nil
	}
	of := &Monitor{name: m.name, class: class, reports: m.reports, traces: m.traces}
	of.stats, _ = gate.(interface{ Stats() Stats })
	return of
}

// waiters returns how many callers are queued.
func (m *Monitor) waiters() int {
	switch {
	case m.core != nil:
		return m.core.waiters()
	case m.stats != nil:
		return m.stats.Stats().Waiters
	}
	return 0
}

// inUse returns how many permits are held, if that is known.
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

// Report sends an event to the observers, with the name of the gate and the number
// of its waiters. No lock that an observer might need may be held.
func (m *Monitor) Report(e Event) {
	if m != nil {
		m.report(&e)
	}
}

// report is Report for an event that is not copied: it takes 128 bytes.
func (m *Monitor) report(e *Event) {
	e.Name, e.Class = m.name, m.class
	e.Waiters += m.waiters() // an event about a caller that is going to wait counts it already
	for _, o := range m.observers {
		o.Observe(*e)
	}
}

// A Wait is one acquire under observation, from [Monitor.Begin] to Granted or
// Failed. It is passed by pointer within a package and never shared.
type Wait struct {
	m      *Monitor
	ctx    context.Context
	weight int64
	start  int64  // of the wait, since the epoch; 0 while the caller has not waited
	more   *trace // nil unless this acquire is recorded or call sites are wanted
}

// A trace is what is known of a caller beyond the common case.
type trace struct {
	stack    stack
	by       identity
	record   bool
	queued   *queuedWait // in the list of waits
	detached bool        // the wait ends in a goroutine that has not waited
}

// Begin notes that a caller asks for n permits.
func (m *Monitor) Begin(ctx context.Context, n int64) Wait {
	w := m.begin(ctx, n)
	if w.more != nil {
		m.auditOrder(&w)
	}
	return w
}

// BeginTry is Begin for a caller that does not wait: the order in which it holds and
// acquires does not matter.
func (m *Monitor) BeginTry(ctx context.Context, n int64) Wait { return m.begin(ctx, n) }

// begin is Begin for a caller that does not wait, so that no order matters.
func (m *Monitor) begin(ctx context.Context, n int64) Wait {
	w := Wait{m: m, ctx: ctx, weight: n}
	if m != nil && m.traces {
		w.more = m.trace(ctx)
	}
	return w
}

func (m *Monitor) trace(ctx context.Context) *trace {
	t := &trace{record: m.level == DiagnoseFull || m.warnHold > 0 || m.level == DiagnoseSampled && rand.Uint32()%sampleEvery == 0}
	if t.record || m.sites {
		t.stack = callers()
	}
	if m.level > DiagnoseOff {
		t.by = m.identify(ctx)
	}
	return t
}

// site returns where the caller is, if that is known.
func (w *Wait) site() string {
	if w.more == nil {
		return ""
	}
	return w.more.stack.site()
}

// Queued reports that the caller is about to wait. It is called before the caller
// joins the queue: observers may take their time, or panic, and no waiter should
// depend on a goroutine that runs them.
func (w *Wait) Queued() {
	m := w.m
	if m == nil {
		return
	}
	w.start = sinceEpoch()
	m.report(&Event{Kind: EventQueued, Weight: w.weight, Site: w.site(), Waiters: 1})
	if !m.signals && m.exhausted.CompareAndSwap(false, true) {
		m.report(&Event{Kind: EventExhausted, Waiters: 1})
	}
	if t := w.more; t != nil && t.record {
		t.queued = recorded.startWait(w)
	}
}

// ended takes the caller off the list of waits.
func (w *Wait) ended() {
	t := w.more
	if t == nil || t.queued == nil {
		return
	}
	recorded.endWait(t.queued)
	t.queued = nil
	if t.detached {
		contention.count(t.stack, w.waited(), w.m.sampleWeight())
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

// Granted issues the permit that the gate has granted, and reports it. If an
// observer panics the permit is released.
func (w *Wait) Granted(i *Issuer) Permit {
	if w.m == nil {
		return i.Permit(w.weight)
	}
	w.ended()
	var p Permit
	if w.more != nil && w.more.record {
		p = newRecord(w, i).permit(w.weight)
		i.unslotted.Add(1)
	} else {
		p = i.permitSince(w.weight, sinceEpoch())
	}
	w.m.issued(p, &Event{Kind: EventAcquired, Weight: w.weight, Wait: w.waited(), Site: w.site()})
	return p
}

// issue is Granted for a caller that did not wait and needs no trace.
//
// issue and takeBack are all that an observed pair costs beyond its clock. Their events
// are local variables, for one that is passed on is copied once more. They are filled
// in before an atomic operation: to copy a variable that was written a moment ago, in
// smaller pieces than it is read, stalls the processor until the writes have reached the
// cache, and the atomic operation waits for that anyway.
func (m *Monitor) issue(i *Issuer, n int64) Permit {
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
			f(e) // without a copy for the method that would call it
		} else {
			o.Observe(e)
		}
	}
	m.edge()
	reported = true
	return p
}

// takeBack returns a permit that was acquired at a time since the epoch, and reports
// that it was released.
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
	m.edge()
}

// issued reports a new permit, and releases it if an observer panics.
func (m *Monitor) issued(p Permit, e *Event) {
	reported := false
	defer func() {
		if !reported {
			p.Release()
		}
	}()
	m.report(e)
	m.edge()
	reported = true
}

// lowered is Granted for a Counter, which issues no permit.
func (w *Wait) lowered(n int64) {
	if w.m != nil {
		w.ended()
		w.m.report(&Event{Kind: EventAcquired, Weight: n, Wait: w.waited(), Site: w.site()})
	}
}

// Failed reports why the caller gets no permit, and returns the error.
func (w *Wait) Failed(err error) error {
	m := w.m
	if m == nil {
		return err
	}
	w.ended()
	kind := EventRejected
	switch {
	case errors.Is(err, ErrTimeout):
		kind = EventTimedOut
	case w.ctx != nil && w.ctx.Err() != nil && err == context.Cause(w.ctx):
		kind = EventCancelled
	}
	m.report(&Event{Kind: kind, Weight: w.weight, Wait: w.waited(), Site: w.site(), Err: err})
	m.edge()
	return err
}

// released reports that a permit with a record was released.
func (m *Monitor) released(n int64, hold time.Duration, site string) {
	m.report(&Event{Kind: EventReleased, Weight: n, Hold: hold, Site: site})
	m.edge()
}

// edge reports that the gate became exhausted or recovered.
func (m *Monitor) edge() {
	if c := m.core; c != nil && !c.queue.occupied.Load() && (c.free() == 0) == m.exhausted.Load() {
		return // the common case, decided without a call
	}
	if !m.signals {
		m.edgeTo(m.isExhausted())
	}
}

// edgeTo reports a change to what was seen. Then it looks again: a caller that
// changed it back during the report found the flag not yet moved.
func (m *Monitor) edgeTo(exhausted bool) {
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
		m.edge()
	}
}
