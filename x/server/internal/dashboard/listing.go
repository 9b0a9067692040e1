package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/filter"
)

// A listing is the result of one read of all semaphores, for all viewers. Each order is sorted
// when the first viewer needs it.
type listing struct {
	at      time.Time
	rows    []*row // by name
	byName  map[string]*row
	waiting bool // some semaphore has waiters

	mu         sync.Mutex
	sorted     map[string][]*row // by order
	selections map[selectionKey]*selection
	arranged   time.Time      // when the order "problem" was last sorted by load; zero: never
	places     map[string]int // places in that order, by name
}

// A row is a semaphore in the overview. It is immutable: a row that looks the same in the next
// read is used again.
type row struct {
	semaphore
	lower   string // the name in lower case, for filters
	live    Live
	Problem string    // in words; "": none
	rank    int       // urgency of the problem; 0: none
	urgency int       // the rank by which rows are ordered: it falls only when rank has been lower for steady
	ended   time.Time // when rank fell below urgency; zero: it has not
	queued  time.Time // since when reads have found waiters; zero: the last one has found none
	WaitP99 string
	Rate    string // grants a second
	Created bool   // false: declared, and not used yet
	shown   shownRow
}

// A shownRow is what a row shows: while it is equal, the HTML is equal.
type shownRow struct {
	figures
	problem, waitP99, rate, spark string
	created, member               bool
}

// list returns all semaphores, ordered by name.
func (r *reader) list(ctx context.Context, within time.Duration) (*listing, error) {
	return fetch(r, &r.rows, within, false, func(ctx context.Context) (*listing, error) {
		r.mu.Lock()
		before := r.listed
		r.mu.Unlock()
		var all []protocol.Summary
		for q := (protocol.ListQuery{}); ; {
			page, err := r.store.List(ctx, q)
			if err != nil {
				return nil, err
			}
			all = append(all, page...)
			if len(page) < q.Most() {
				break
			}
			q.After = page[len(page)-1].Name
		}
		r.recovered()
		r.rendered.next()
		l := r.newListing(before, all, time.Now())
		r.mu.Lock()
		r.listed = l
		r.mu.Unlock()
		return l, nil
	}).wait(ctx)
}

// newListing returns a listing. Declared semaphores that the store does not have are added.
func (r *reader) newListing(before *listing, all []protocol.Summary, now time.Time) *listing {
	l := &listing{at: now, rows: make([]*row, 0, len(all)), byName: make(map[string]*row, len(all)), sorted: map[string][]*row{}, selections: map[selectionKey]*selection{}}
	if before != nil {
		before.mu.Lock()
		l.arranged, l.places = before.arranged, before.places
		before.mu.Unlock()
	}
	add := func(s protocol.Summary, created bool) {
		var was *row
		if before != nil && now.Sub(before.at) <= 2*timeout+every { // otherwise the list was not viewed for a while
			was = before.byName[s.Name]
		}
		one := newRow(s, created, r.measures.Live(s.Name, s.InUse > 0 || s.Waiting > 0), was, now)
		l.rows = append(l.rows, one)
		l.byName[s.Name] = one
		l.waiting = l.waiting || s.Waiting > 0
	}
	for _, s := range all {
		add(s, true)
	}
	for _, s := range r.measures.Declared() {
		if l.byName[s.Name] == nil {
			add(s, false)
		}
	}
	if len(l.rows) > len(all) {
		slices.SortFunc(l.rows, func(a, b *row) int { return cmp.Compare(a.Name, b.Name) })
	}
	return l
}

// newRow returns a row, or the one of the last read if nothing has changed.
func newRow(s protocol.Summary, created bool, live Live, was *row, now time.Time) *row {
	live.HeadAge, live.OldestHold = listedAge(live.HeadAge), listedAge(live.OldestHold)
	one := &row{semaphore: summarized(s), live: live, Created: created, WaitP99: "–", Rate: "–"}
	if live.WaitP99 > 0 {
		one.WaitP99 = Brief(live.WaitP99)
	}
	if live.Measured {
		one.Rate = perSecond(live.Grants)
	}
	one.free = one.freeText(live)
	one.lasts(was, now)
	one.shown = shownRow{figures: one.figures(), problem: one.Problem, waitP99: one.WaitP99, rate: one.Rate, created: created}
	if was != nil && was.shown == one.shown && was.live == live && was.urgency == one.urgency && was.ended.Equal(one.ended) && was.queued.Equal(one.queued) {
		return was
	}
	if was != nil {
		one.lower = was.lower
	} else {
		one.lower = strings.ToLower(s.Name)
	}
	return one
}

const (
	// lasting is how long the first acquire of a queue waits before that is a problem: short queues
	// come and go all the time.
	lasting = 2 * time.Second
	// steady is how long a semaphore keeps its place after its problem has ended, and how long the
	// places of equally urgent semaphores stay.
	steady = 10 * time.Second
)

// lasts sets the problem of a row, given the row of the last read.
func (r *row) lasts(was *row, now time.Time) {
	if r.waiting > 0 {
		r.queued = now
		if was != nil && !was.queued.IsZero() {
			r.queued = was.queued
		}
	}
	r.rank, r.Problem = problemOf(r, now)
	r.urgency = r.rank
	if was == nil || was.urgency <= r.rank {
		return
	}
	ended := was.ended
	if ended.IsZero() {
		ended = now
	}
	if now.Sub(ended) < steady {
		r.urgency, r.ended = was.urgency, ended
	}
}

// listedAge truncates an age to what a row needs, so that most rows stay the same from read to read.
func listedAge(d time.Duration) time.Duration {
	if d > 0 && d < time.Second {
		return max(d.Truncate(100*time.Millisecond), 100*time.Millisecond)
	}
	return shownAge(d)
}

// outlier is how much longer than the 99th percentile a lease is held before that is a problem.
// Holds shorter than longHold are none.
const (
	outlier  = 5
	longHold = 30 * time.Second
)

// heldLong reports whether a hold is far longer than usual.
func heldLong(held, p99 time.Duration) bool {
	return p99 > 0 && held >= longHold && held > outlier*p99
}

// problemOf returns what is wrong with a semaphore, in words, and its urgency. The age of a queue whose
// acquires came through other servers is not known: it is the time for which reads have found it.
func problemOf(r *row, now time.Time) (rank int, text string) {
	var parts []string
	add := func(at int, format string, args ...any) {
		rank = max(rank, at)
		parts = append(parts, fmt.Sprintf(format, args...))
	}
	switch {
	case r.waiting > 0 && r.live.HeadAge >= lasting:
		text := fmt.Sprintf("%s waiting, head %s", count(r.waiting), age(r.live.HeadAge))
		if first := r.live.First; first > 0 && first <= r.Free() { // the store grants nothing yet, or the first waiter is another server's
			text += fmt.Sprintf(", %s free", count(r.Free()))
		}
		add(4, "%s", text)
	case r.waiting > 0 && r.live.HeadAge == 0 && now.Sub(r.queued) >= lasting:
		add(4, "%s waiting", count(r.waiting))
	}
	if !r.IsRate() && heldLong(r.live.OldestHold, r.live.HoldP99) {
		add(3, "held %s, p99 is %s", age(r.live.OldestHold), Brief(r.live.HoldP99))
	}
	if r.live.Failures >= 0.05 {
		add(2, "%s/s not granted", perSecond(r.live.Failures))
	}
	if r.Config.Draining && r.InUse > 0 {
		add(1, "%s still held", permits(r.InUse))
	}
	return rank, strings.Join(parts, "; ")
}

// full reports whether no permit is free.
func (r *row) full() bool { return r.Created && r.InUse >= r.Effective }

// States adds that a semaphore has not been used yet.
func (r *row) States() []state {
	if !r.Created {
		return []state{{"declared", "The operator has declared it. The first acquire creates it.", "calm"}}
	}
	return r.semaphore.States()
}

// orders maps the overview's sort orders to comparisons. The default is "problem". Rows that
// compare equal are ordered by name.
var orders = map[string]func(a, b *row) int{
	"problem": func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.urgency, a.urgency), cmp.Compare(b.waiting, a.waiting), cmp.Compare(b.use(), a.use()))
	},
	"waiting": func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.waiting, a.waiting), cmp.Compare(b.use(), a.use()))
	},
	"use": func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.use(), a.use()), cmp.Compare(b.waiting, a.waiting))
	},
	"wait": func(a, b *row) int { return cmp.Compare(b.live.WaitP99, a.live.WaitP99) },
	"rate": func(a, b *row) int { return cmp.Compare(tenths(b.live.Grants), tenths(a.live.Grants)) },
	"name": nil,
}

func tenths(v float64) float64 { return math.Round(10 * v) }

// in returns the rows in an order.
func (l *listing) in(order string) []*row {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all := l.sorted[order]; all != nil {
		return all
	}
	by, reversed := strings.CutPrefix(order, "-")
	all := slices.Clone(l.rows)
	if compare := orders[by]; by == "problem" {
		l.arrangeLocked(all)
		if reversed {
			slices.Reverse(all)
		}
	} else if compare != nil {
		if reversed {
			slices.SortStableFunc(all, func(a, b *row) int { return compare(b, a) })
		} else {
			slices.SortStableFunc(all, compare)
		}
	} else if reversed {
		slices.Reverse(all)
	}
	l.sorted[order] = all
	return all
}

// arrangeLocked sorts rows by problem. The load, which changes with every read, orders equally urgent
// rows only once in steady, so that rows do not change places all the time.
func (l *listing) arrangeLocked(all []*row) {
	if l.places == nil || l.at.Sub(l.arranged) >= steady {
		slices.SortStableFunc(all, orders["problem"])
		l.arranged, l.places = l.at, make(map[string]int, len(all))
		for i, one := range all {
			l.places[one.Name] = i
		}
		return
	}
	type placed struct {
		row   *row
		place int
	}
	rows := make([]placed, len(all))
	for i, one := range all {
		place, known := l.places[one.Name]
		if !known {
			place = len(l.places) // it was created since then
		}
		rows[i] = placed{one, place}
	}
	slices.SortFunc(rows, func(a, b placed) int {
		return cmp.Or(cmp.Compare(b.row.urgency, a.row.urgency), cmp.Compare(a.place, b.place), cmp.Compare(a.row.Name, b.row.Name))
	})
	for i, one := range rows {
		all[i] = one.row
	}
}

// matching returns the rows that match the filter and that the viewer may see, in order.
func (l *listing) matching(v view, wanted filter.Filter) []*row {
	all := l.in(v.Sort)
	if v.prefix == "" && len(wanted) == 0 {
		return all
	}
	var found []*row
	for _, one := range all {
		if strings.HasPrefix(one.Name, v.prefix) && wanted.Matches(one.subject()) {
			found = append(found, one)
		}
	}
	return found
}
