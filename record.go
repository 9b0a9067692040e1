package sema

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// A record is what the diagnostics know about one permit that is held. It never
// reaches the permit's handle: profiles and lists hold records, and must not
// keep a permit that everybody else has lost from being collected.
type record struct {
	monitor    *Monitor
	issuer     *Issuer // nil for leases
	lease      Lease   // nil for permits of an issuer
	listed     bool    // whether the diagnostics list a lease
	weight     int64
	since      time.Time
	stack      stack
	by         identity
	handedOver bool            // permits acquired at this place are released by other goroutines
	place      string          // where it was acquired, if the goroutine is known
	overheld   *time.Timer     // with WarnHold
	leak       runtime.Cleanup // of the handle
	watched    bool            // whether leak is set
}

func newRecord(w *Wait, i *Issuer) *record {
	r := &record{monitor: w.m, issuer: i, weight: w.weight, since: time.Now(), stack: w.more.stack, by: w.more.by}
	if r.by.goroutine != 0 {
		r.place = r.stack.place()
		r.handedOver = handovers.of(r.place) == handsOver
	}
	return r
}

// permit makes the one permit of the record, and watches over it.
func (r *record) permit(weight int64) Permit {
	h := &handle{kind: recordedHandle, rec: r}
	h.issuer.Store(r.issuer)
	h.gen.Store(1)
	r.watch(h)
	return Permit{h, 1, weight}
}

// watch lists the permit of a handle and looks for its leak.
func (r *record) watch(h *handle) {
	recorded.add(r)
	if d := r.monitor.warnHold; d > 0 { // less what a part has behind it
		r.overheld = time.AfterFunc(d-time.Since(r.since), r.reportOverheld)
	}
	// The cleanup runs outside any bubble, from where a waiter inside cannot
	// be woken; so leaks are not looked for in bubbles.
	if !inBubble() {
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

// end is called once, when the permit has ended in whatever way.
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
	r.learn(acquired)
	r.takeBack(weight)
	r.monitor.released(weight, time.Since(r.since), r.stack.site())
}

// split ends the record and makes one for each part. What was acquired meanwhile was
// acquired under both.
func (r *record) split(n, m int64) (first, rest Permit) {
	acquired := recorded.pendingOf(r)
	r.end()
	a, b := *r, *r
	a.weight, b.weight = n, m
	first, rest = a.permit(n), b.permit(m)
	for wanted, o := range acquired {
		recorded.addPending(&a, wanted, o)
		recorded.addPending(&b, wanted, o)
	}
	return first, rest
}

// leaked runs when the handle was garbage-collected with the permit held.
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
	m.edge()
}

func (r *record) reportOverheld() {
	r.report(EventOverheld, fmt.Sprintf("a permit of weight %d of semaphore %q has been held for over %v. Acquired at\n%s",
		r.weight, r.monitor.name, r.monitor.warnHold, r.stack))
}

func (r *record) report(kind EventKind, report string) {
	r.monitor.Report(Event{Kind: kind, Weight: r.weight, Hold: time.Since(r.since), Site: r.stack.site(), Report: report})
}

// A Holder is a permit that is held, as the diagnostics know it.
type Holder struct {
	Name   string // of the semaphore
	Weight int64
	Age    time.Duration
	Site   string // dir/file.go:line of the acquire
	Stack  string
}

// Holders lists the recorded permits that are held, the oldest first: all of
// semaphores diagnosed at DiagnoseFull or with WarnHold, a sample of others.
func Holders() []Holder {
	var list []Holder
	for _, r := range recorded.all() {
		list = append(list, Holder{Name: r.monitor.name, Weight: r.weight, Age: time.Since(r.since), Site: r.stack.site(), Stack: r.stack.String()})
	}
	slices.SortFunc(list, func(a, b Holder) int { return cmp.Compare(b.Age, a.Age) })
	return list
}
