package sema

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// An identity is what is known of a caller: what its context says it holds and, at
// DiagnoseFull, its goroutine (0 if unknown). It is kept in records, and so names permits
// without reaching their handles.
type identity struct {
	goroutine uint64
	held      []hold
}

// A hold is a permit that somebody is known to hold.
type hold struct {
	name    string
	monitor *Monitor // nil if the gate has none
	weight  int64
	stack   stack   // empty if it was not recorded
	rec     *record // nil likewise
	booked  bool    // on the caller's goroutine, which may have handed it over
}

func (m *Monitor) identify(ctx context.Context) (id identity) {
	for h := holdingOf(ctx); h != nil; h = h.outer {
		if h.permit.Held() {
			id.held = append(id.held, h.permit.describe())
		}
	}
	if m.level == DiagnoseFull {
		id.goroutine = goroutineID()
	}
	return id
}

// holds lists what id holds, by its contexts and by its goroutine.
func (id identity) holds() []hold {
	list := id.held
	if id.goroutine != 0 {
		for _, r := range recorded.heldByGoroutine(id.goroutine) {
			if !slices.ContainsFunc(id.held, func(h hold) bool { return h.rec == r }) {
				list = append(list, hold{r.monitor.name, r.monitor, r.weight, r.stack, r, true})
			}
		}
	}
	return list
}

// contextHas reports whether the permit of r is one that the caller's context has.
func (id identity) contextHas(r *record) bool {
	return slices.ContainsFunc(id.held, func(h hold) bool { return h.rec == r })
}

// describe says what is known of a permit whoever holds it.
func (p Permit) describe() hold {
	if r := p.handle.rec; r != nil {
		return hold{r.monitor.name, r.monitor, p.weight, r.stack, r, false}
	}
	h := hold{name: p.gateName(), weight: p.weight}
	if i := p.issuer(); i != nil {
		h.monitor = i.monitor
	}
	return h
}

// orders is in which order named semaphores were seen to be acquired: an edge
// from each held to each then waited for.
var orders = orderGraph{edges: map[string]map[string]edge{}}

type orderGraph struct {
	mu    sync.Mutex
	edges map[string]map[string]edge
	n     int // edges
}

// mostOrders keeps names that are made up as a program runs from filling the
// memory.
const mostOrders = 10_000

// An edge remembers where the order was first seen.
type edge struct{ held, wanted stack }

// auditOrder notes that the gate is about to be acquired, and reports, once, each
// cycle this closes: two callers in it may block each other.
func (m *Monitor) auditOrder(w *Wait) {
	if m.level == DiagnoseOff || m.name == "" {
		return
	}
	for _, h := range w.more.by.holds() {
		switch {
		case h.name == "" || h.name == m.name:
		case h.booked:
			if !orders.has(h.name, m.name) {
				recorded.addPending(h.rec, m, pendingOrder{w.weight, w.more.stack})
			}
		default:
			m.noteOrder(h, w.weight, w.more.stack)
		}
	}
}

// A pendingOrder is an acquire while a permit was held that is booked on a goroutine.
type pendingOrder struct {
	weight int64
	at     stack
}

// mostPending bounds the pending orders of one permit, which may be held for as long as
// a program runs.
const mostPending = 100

// noteOrder notes that the gate was acquired while h was held, at some place.
func (m *Monitor) noteOrder(h hold, weight int64, at stack) {
	if report := orders.note(h, m.name, at); report != "" {
		m.Report(Event{Kind: EventInverted, Weight: weight, Site: at.site(), Report: report})
	}
}

// has reports whether an order was seen.
func (g *orderGraph) has(held, wanted string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, known := g.edges[held][wanted]
	return known || g.n >= mostOrders
}

// note adds an edge and returns a report if it is new and closes a cycle.
func (g *orderGraph) note(held hold, wanted string, at stack) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.edges[held.name][wanted]; known || g.n >= mostOrders {
		return ""
	}
	if len(at) == 0 {
		at = callers()
	}
	if g.edges[held.name] == nil {
		g.edges[held.name] = map[string]edge{}
	}
	g.edges[held.name][wanted] = edge{held.stack, at}
	g.n++
	way := g.path(wanted, held.name, map[string]bool{})
	if way == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "acquire order inverted: %s → %s here, but %s elsewhere; callers of both can block each other for ever. Acquire them in one order, or together with AcquireAll.\n",
		held.name, wanted, strings.Join(way, " → "))
	ring := append([]string{held.name}, way...)
	for i := range len(ring) - 1 {
		e := g.edges[ring[i]][ring[i+1]]
		fmt.Fprintf(&b, "%q held, acquired at\n%s  while acquiring %q at\n%s", ring[i], e.held, ring[i+1], e.wanted)
	}
	return b.String()
}

// path finds a way along the edges, nil if there is none.
func (g *orderGraph) path(from, to string, seen map[string]bool) []string {
	if from == to {
		return []string{to}
	}
	seen[from] = true
	for next := range g.edges[from] {
		if !seen[next] {
			if way := g.path(next, to, seen); way != nil {
				return append([]string{from}, way...)
			}
		}
	}
	return nil
}

// deadlockAfter is how long a caller waits before a deadlock is looked for: most waits
// that look like one end soon.
const deadlockAfter = time.Second

// auditDeadlock looks whether w is part of a deadlock: every permit in use of every
// semaphore involved was acquired by a caller that waits for another of them. It can
// only be suspected, for another goroutine may release a permit.
func (m *Monitor) auditDeadlock(w *queuedWait) {
	if !recorded.isWaiting(w) {
		return
	}
	own, above := int64(0), sync.OnceValue(parents)
	for _, h := range w.by.holds() {
		if h.monitor == m && !(h.booked && h.rec.isHandedOver(w, above)) {
			own += h.weight
		}
	}
	if in, known := m.inUse(); own > 0 && known && own == in {
		m.Report(Event{Kind: EventDeadlocked, Weight: w.weight, Site: w.stack.site(), Report: fmt.Sprintf(
			"deadlock suspected: the caller holds all %d permits in use of %q and waits for %d more, at\n%s", in, m.name, w.weight, w.stack)})
		return
	}
	if m.level != DiagnoseFull {
		return
	}
	if ring := stuck(w); ring != nil && !mayBeHandedOver(ring, above) && reportedRings.first(ring) {
		m.Report(Event{Kind: EventDeadlocked, Weight: w.weight, Site: w.stack.site(), Report: describeRing(ring)})
	}
}

// stuck returns the blocked permits of all semaphores that w can never pass
// unless somebody outside the ring acts, or nil if somebody inside can.
func stuck(w *queuedWait) []blockedPermit {
	var ring []blockedPermit
	involved := []*Monitor{w.monitor}
	for i := 0; i < len(involved); i++ { // grows while it runs
		m := involved[i]
		blocked := int64(0)
		for _, k := range recorded.blockedPermits(m) {
			ring = append(ring, k)
			blocked += k.rec.weight
			if !slices.Contains(involved, k.by.monitor) {
				involved = append(involved, k.by.monitor)
			}
		}
		if in, known := m.inUse(); blocked == 0 || !known || blocked != in {
			return nil
		}
	}
	return ring
}

// mayBeHandedOver reports whether a permit of the ring may be held by a goroutine that does
// not wait.
func mayBeHandedOver(ring []blockedPermit, above func() map[uint64]bool) bool {
	for _, k := range ring {
		if !k.by.by.contextHas(k.rec) && k.rec.isHandedOver(k.by, above) {
			return true
		}
	}
	return false
}

func describeRing(ring []blockedPermit) string {
	var b strings.Builder
	b.WriteString("deadlock suspected: every permit of the semaphores below was acquired by somebody who waits for another of them\n")
	for _, k := range ring {
		fmt.Fprintf(&b, "%d of %q, acquired at\n%s  by one who waits for %d of %q at\n%s",
			k.rec.weight, k.rec.monitor.name, k.rec.stack, k.by.weight, k.by.monitor.name, k.by.stack)
	}
	return b.String()
}

// reportedRings remembers deadlocks, so that late comers do not repeat them.
var reportedRings ringSet

type ringSet struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (s *ringSet) first(ring []blockedPermit) bool {
	ring = slices.Clone(ring)
	slices.SortFunc(ring, func(a, b blockedPermit) int {
		return cmp.Compare(fmt.Sprintf("%p", a.rec), fmt.Sprintf("%p", b.rec))
	})
	key := fmt.Sprint(ring)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[key] {
		return false
	}
	if s.seen == nil || len(s.seen) >= 1024 {
		s.seen = map[string]bool{}
	}
	s.seen[key] = true
	return true
}
