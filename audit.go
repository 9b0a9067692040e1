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

// An identity is what the audits know of a caller: the permits that its context
// carries and, at DiagnoseFull, its goroutine. Records keep identities, so an
// identity names permits without referring to their handles.
type identity struct {
	goroutine uint64 // 0: unknown
	held      []hold
}

// A hold is a permit that a caller is known to hold.
type hold struct {
	name        string
	monitor     *Monitor // nil: the gate has none
	weight      int64
	stack       stack   // empty: not recorded
	rec         *record // nil: not recorded
	byGoroutine bool    // attributed by goroutine, which may have handed it over; otherwise by context
}

// identify returns the identity of a caller with ctx.
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

// holds returns the permits that id holds, by its context and by its goroutine.
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

// holdsByContext reports whether the caller's context carries the permit of r.
func (id identity) holdsByContext(r *record) bool {
	return slices.ContainsFunc(id.held, func(h hold) bool { return h.rec == r })
}

// describe returns what is known of a permit, regardless of its holder.
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

// orders are the orders in which named semaphores were acquired: an edge leads from
// each held semaphore to each semaphore acquired meanwhile.
var orders = orderGraph{edges: map[string]map[string]edge{}}

type orderGraph struct {
	mu    sync.Mutex
	edges map[string]map[string]edge
	n     int // edges
}

// maxOrders bounds the memory of a program that generates names at run time.
const maxOrders = 10_000

// An edge contains the stacks at which the order was first seen with its guards: the permits that callers have
// always held besides.
type edge struct {
	held, wanted stack
	guards       []guard
}

// auditOrder records that the gate is about to be acquired. It reports each cycle
// that this closes, once: two callers in the cycle may block each other.
func (m *Monitor) auditOrder(w *Wait) {
	if m.level == DiagnoseOff || m.name == "" {
		return
	}
	holds := w.trace.caller.holds()
	for _, h := range holds {
		if h.name == "" || h.name == m.name {
			continue
		}
		switch guards := guardsOf(holds, h, m.name); {
		case !h.byGoroutine:
			m.noteOrder(h, pendingOrder{w.weight, w.trace.stack, guards})
		case orders.adds(h.name, m.name, guards):
			recorded.addPending(h.rec, m, pendingOrder{w.weight, w.trace.stack, guards})
		}
	}
}

// A pendingOrder is an acquire that happened while a permit attributed to a goroutine
// was held. It counts once that goroutine releases the permit.
type pendingOrder struct {
	weight int64
	at     stack
	guards []guard
}

// maxPending bounds the pending orders of one permit, which may be held as long as
// the program runs.
const maxPending = 100

// noteOrder records that the gate was acquired while h was held.
func (m *Monitor) noteOrder(h hold, o pendingOrder) {
	if report := orders.note(h, m.name, o.at, o.guards); report != "" {
		m.Report(Event{Kind: EventInverted, Weight: o.weight, Site: o.at.site(), Report: report})
	}
}

// adds reports whether an order with these guards would change the graph.
func (g *orderGraph) adds(held, wanted string, guards []guard) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.addsLocked(held, wanted, guards)
}

func (g *orderGraph) addsLocked(held, wanted string, guards []guard) bool {
	e, known := g.edges[held][wanted]
	if !known {
		return g.n < maxOrders
	}
	_, less := narrow(e.guards, guards)
	return less
}

// note adds an edge, or removes guards of it. It returns a report if a cycle can close by that.
func (g *orderGraph) note(held hold, wanted string, at stack, guards []guard) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.addsLocked(held.name, wanted, guards) {
		return ""
	}
	if len(at) == 0 {
		at = callers()
	}
	if g.edges[held.name] == nil {
		g.edges[held.name] = map[string]edge{}
	}
	was, known := g.edges[held.name][wanted]
	if known {
		guards, _ = narrow(was.guards, guards)
	} else {
		g.n++
	}
	g.edges[held.name][wanted] = edge{held.stack, at, guards}
	back := g.closing(held.name, wanted, was.guards, guards, known)
	if back == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "acquire order inverted: %s → %s here, but %s elsewhere; callers of both can block each other for ever. Acquire them in one order, or together with AcquireAll.\n",
		held.name, wanted, strings.Join(back, " → "))
	ring := append([]string{held.name}, back...)
	for i := range len(ring) - 1 {
		e := g.edges[ring[i]][ring[i+1]]
		fmt.Fprintf(&b, "%q held, acquired at\n%s  while acquiring %q at\n%s", ring[i], e.held, ring[i+1], e.wanted)
	}
	return b.String()
}

// path returns a path along the edges, or nil if there is none.
func (g *orderGraph) path(from, to string, seen map[string]bool) []string {
	if from == to {
		return []string{to}
	}
	seen[from] = true
	for next := range g.edges[from] {
		if !seen[next] {
			if rest := g.path(next, to, seen); rest != nil {
				return append([]string{from}, rest...)
			}
		}
	}
	return nil
}

// deadlockAfter is how long a caller waits before it is checked for a deadlock. Most
// waits that resemble a deadlock end sooner.
const deadlockAfter = time.Second

// auditDeadlock checks whether w is part of a deadlock, and reports it: every permit in
// use of every semaphore involved was acquired by a caller that waits for another of
// them. A deadlock can only be suspected, because another goroutine may release a permit.
func (m *Monitor) auditDeadlock(w *queuedWait) {
	if !recorded.isWaiting(w) {
		return
	}
	held, getParents := int64(0), sync.OnceValue(parents)
	for _, h := range w.caller.holds() {
		if h.monitor.audited() == m.audited() && !(h.byGoroutine && h.rec.isHandedOver(w, getParents)) {
			held += h.weight
		}
	}
	if in, known := m.audited().inUse(); held > 0 && known && held == in {
		m.Report(Event{Kind: EventDeadlocked, Weight: w.weight, Site: w.stack.site(), Report: fmt.Sprintf(
			"deadlock suspected: the caller holds all %d permits in use of %q and waits for %d more, at\n%s", in, m.name, w.weight, w.stack)})
		return
	}
	if m.level != DiagnoseFull {
		return
	}
	if ring := findDeadlock(w); ring != nil && !mayBeHandedOver(ring, getParents) && reportedRings.addNew(ring) {
		m.Report(Event{Kind: EventDeadlocked, Weight: w.weight, Site: w.stack.site(), Report: describeRing(ring)})
	}
}

// findDeadlock returns the permits in use of all semaphores that w depends on, if each
// of them is blocked: its holder waits for one of these semaphores. It returns nil if a
// holder does not wait, or a permit is not recorded.
func findDeadlock(w *queuedWait) []blockedPermit {
	var ring []blockedPermit
	involved := []*Monitor{w.monitor.audited()}
	for i := 0; i < len(involved); i++ { // grows while it runs
		m := involved[i]
		blocked := int64(0)
		for _, k := range recorded.blockedPermits(m) {
			ring = append(ring, k)
			blocked += k.rec.weight
			if gate := k.wait.monitor.audited(); !slices.Contains(involved, gate) {
				involved = append(involved, gate)
			}
		}
		if in, known := m.inUse(); blocked == 0 || !known || blocked != in {
			return nil
		}
	}
	return ring
}

// mayBeHandedOver reports whether a permit of the ring may be held by a goroutine that
// does not wait.
func mayBeHandedOver(ring []blockedPermit, getParents func() map[uint64]bool) bool {
	for _, k := range ring {
		if !k.wait.caller.holdsByContext(k.rec) && k.rec.isHandedOver(k.wait, getParents) {
			return true
		}
	}
	return false
}

func describeRing(ring []blockedPermit) string {
	var b strings.Builder
	b.WriteString("deadlock suspected: every permit of the semaphores below was acquired by a caller that waits for another of them\n")
	for _, k := range ring {
		fmt.Fprintf(&b, "%d of %q, acquired at\n%s  by a caller that waits for %d of %q at\n%s",
			k.rec.weight, k.rec.monitor.name, k.rec.stack, k.wait.weight, k.wait.monitor.name, k.wait.stack)
	}
	return b.String()
}

// reportedRings are the deadlocks already reported, so that callers that join the
// queue later do not repeat the report.
var reportedRings ringSet

type ringSet struct {
	mu   sync.Mutex
	seen map[string]bool
}

// addNew adds ring to the set and reports whether it was absent.
func (s *ringSet) addNew(ring []blockedPermit) bool {
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
