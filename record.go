package sema

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/sema-go/sema/internal/bubble"
)

// A record is what the diagnostics know about one held permit. It never refers to the
// permit's handle: profiles and lists hold records, and must not keep a permit that is
// otherwise unreachable from being collected.
type record struct {
	monitor    *Monitor
	issuer     *Issuer // nil: the permit has a lease
	lease      Lease   // nil: the permit has an issuer
	listed     bool    // for leases: the diagnostics list the permit
	weight     int64
	since      time.Time
	stack      stack
	caller     identity
	handedOver bool            // other goroutines release the permits acquired at this place
	place      string          // place of the acquire; "": the goroutine is unknown
	overheld   *time.Timer     // nil without WarnHold
	leak       runtime.Cleanup // of the handle
	watched    bool            // whether leak is set
}

func newRecord(w *Wait, i *Issuer) *record {
	r := &record{monitor: w.m, issuer: i, weight: w.weight, since: time.Now(), stack: w.trace.stack, caller: w.trace.caller}
	if r.caller.goroutine != 0 {
		r.place = r.stack.place()
		r.handedOver = handovers.get(r.place) == handsOver
	}
	return r
}

// permit returns the one permit of the record, and watches it.
func (r *record) permit(weight int64) Permit {
	h := &handle{kind: recordedHandle, rec: r}
	h.issuer.Store(r.issuer)
	h.gen.Store(1)
	r.watch(h)
	return Permit{h, 1, weight}
}

// watch lists the permit of handle h, and arranges for the reports of WarnHold and of
// leaks.
func (r *record) watch(h *handle) {
	recorded.add(r)
	if d := r.monitor.warnHold; d > 0 { // counted from the acquire, also for a part of a split
		r.overheld = time.AfterFunc(d-time.Since(r.since), r.reportOverheld)
	}
	// The cleanup runs outside any bubble, where it cannot wake a waiter inside one.
	// So leaks are not detected in bubbles.
	if !bubble.Inside() {
		r.leak = runtime.AddCleanup(h, (*record).leaked, r)
		r.watched = true
	}
}

// takeBack returns the permit to its gate.
func (r *record) takeBack(weight int64) {
	if r.lease != nil {
		r.lease.Release()
		return
	}
	r.issuer.owner.TakeBack(weight)
}

// end stops all watching of the permit. It is called once, however the permit ended.
func (r *record) end() {
	if r.watched {
		r.leak.Stop()
	}
	if r.overheld != nil {
		r.overheld.Stop()
	}
	recorded.remove(r)
}

func (r *record) released(weight int64) {
	acquired := recorded.pendingOf(r)
	r.end()
	r.noteReleaser(acquired)
	r.takeBack(weight)
	r.monitor.released(weight, time.Since(r.since), r.stack.site())
}

// split ends the record and returns a permit for each part. Acquires made meanwhile
// were made under both parts.
func (r *record) split(n, m int64) (first, rest Permit) {
	acquired := recorded.pendingOf(r)
	r.end()
	a, b := *r, *r
	a.weight, b.weight = n, m
	b.issuer = r.issuer.splitOff(n)
	first, rest = a.permit(n), b.permit(m)
	for wanted, o := range acquired {
		recorded.addPending(&a, wanted, o)
		recorded.addPending(&b, wanted, o)
	}
	return first, rest
}

// leaked reports the leak of a permit whose handle was garbage-collected while it was
// held.
func (r *record) leaked() {
	r.end()
	m := r.monitor
	effect := "its weight is lost until the process ends; option ReclaimLeaks would return it"
	if m.reclaim {
		r.takeBack(r.weight)
		effect = "its weight was returned (ReclaimLeaks)"
	}
	r.report(EventLeaked, fmt.Sprintf("a permit of weight %d of semaphore %q was garbage-collected without Release; %s. Acquired %v ago at\n%s",
		r.weight, m.name, effect, time.Since(r.since).Round(time.Millisecond), r.stack))
	m.reportTransition()
}

func (r *record) reportOverheld() {
	r.report(EventOverheld, fmt.Sprintf("a permit of weight %d of semaphore %q has been held for over %v. Acquired at\n%s",
		r.weight, r.monitor.name, r.monitor.warnHold, r.stack))
}

func (r *record) report(kind EventKind, report string) {
	r.monitor.Report(Event{Kind: kind, Weight: r.weight, Hold: time.Since(r.since), Site: r.stack.site(), Report: report})
}

// A Holder describes a held permit that the diagnostics recorded.
type Holder struct {
	Name   string // name of the semaphore
	Weight int64
	Age    time.Duration // since the acquire
	Site   string        // dir/file.go:line of the acquire
	Stack  string        // of the acquire
}

// Holders returns the recorded permits that are held, the oldest first. That is all
// permits of semaphores with DiagnoseFull or WarnHold, and a sample of those with
// DiagnoseSampled.
func Holders() []Holder {
	var list []Holder
	for _, r := range recorded.all() {
		list = append(list, Holder{Name: r.monitor.name, Weight: r.weight, Age: time.Since(r.since), Site: r.stack.site(), Stack: r.stack.String()})
	}
	slices.SortFunc(list, func(a, b Holder) int { return cmp.Compare(b.Age, a.Age) })
	return list
}
