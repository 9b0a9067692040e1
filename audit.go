package sema

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// An identity is who acquires: what its context says it holds and, at Full,
// its goroutine (0 if unknown). It is kept in records, and so names permits
// without reaching their handles.
type identity struct {
	goroutine uint64
	held      []hold
}

// A hold is a permit that somebody is known to hold.
type hold struct {
	name   string
	sem    *Semaphore // nil for a permit of another kind of gate
	weight int64
	stack  stack   // empty if it was not recorded
	rec    *record // nil likewise
}

func (p *probe) identify(ctx context.Context) (id identity) {
	if p.level == Off {
		return id
	}
	for h := holdingOf(ctx); h != nil; h = h.outer {
		if h.permit.Held() {
			id.held = append(id.held, h.permit.describe())
		}
	}
	if p.level == Full {
		id.goroutine = goroutineID()
	}
	return id
}

// holds lists what id holds, by its contexts and by its goroutine.
func (id identity) holds() []hold {
	list := id.held
	if id.goroutine != 0 {
		for _, r := range books.heldByGoroutine(id.goroutine) {
			if !slices.ContainsFunc(id.held, func(h hold) bool { return h.rec == r }) {
				list = append(list, hold{r.sem.name, r.sem, r.weight, r.stack, r})
			}
		}
	}
	return list
}

// has reports whether the identity holds the permit of r.
func (id identity) has(r *record) bool {
	return id.goroutine != 0 && id.goroutine == r.who.goroutine ||
		slices.ContainsFunc(id.held, func(h hold) bool { return h.rec == r })
}

// describe says what is known of a permit whoever holds it.
func (p Permit) describe() hold {
	h := p.handle
	switch h.kind {
	case slotHandle, pooledHandle:
		return hold{name: h.sem.name, sem: h.sem, weight: p.weight}
	case recordedHandle:
		return hold{h.rec.sem.name, h.rec.sem, p.weight, h.rec.stack, h.rec}
	}
	if l, ok := p.Lease().(interface{ Name() string }); ok {
		return hold{name: l.Name(), weight: p.weight}
	}
	return hold{weight: p.weight}
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

// auditOrder notes that s is about to be acquired by id, and reports, once,
// each cycle this closes: two callers who go round it may block each other.
func (p *probe) auditOrder(s *Semaphore, id identity, a attempt) {
	if p.level == Off || s.name == "" {
		return
	}
	for _, h := range id.holds() {
		if h.name == "" || h.name == s.name {
			continue
		}
		if report := orders.note(h, s.name, a.stack); report != "" {
			p.tell(s, Event{Kind: Inverted, Weight: a.weight, Site: a.stack.site(), Report: report})
		}
	}
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

// auditDeadlock looks whether w, which has just begun to wait for s, completes
// a deadlock: every permit in use of every semaphore involved was acquired by
// somebody who now waits for another of them. It can only be suspected, for a
// permit may be released by another than who acquired it.
func (p *probe) auditDeadlock(s *Semaphore, w *wait) {
	if p.level == Off {
		return
	}
	own := int64(0)
	for _, h := range w.who.holds() {
		if h.sem == s {
			own += h.weight
		}
	}
	if in := s.Stats().InUse; own > 0 && own == in {
		p.tell(s, Event{Kind: Deadlocked, Weight: w.weight, Site: w.stack.site(), Report: fmt.Sprintf(
			"deadlock suspected: the caller holds all %d permits in use of %q and waits for %d more, at\n%s", in, s.name, w.weight, w.stack)})
		return
	}
	if p.level != Full {
		return
	}
	if ring := stuck(w); ring != nil && reportedRings.first(ring) {
		p.tell(s, Event{Kind: Deadlocked, Weight: w.weight, Site: w.stack.site(), Report: describeRing(ring)})
	}
}

// stuck returns the blocked permits of all semaphores that w can never pass
// unless somebody outside the ring acts, or nil if somebody inside can.
func stuck(w *wait) []blockade {
	var ring []blockade
	involved := []*Semaphore{w.sem}
	for i := 0; i < len(involved); i++ { // grows while it runs
		s := involved[i]
		blocked := int64(0)
		for _, k := range books.blockades(s) {
			ring = append(ring, k)
			blocked += k.rec.weight
			if !slices.Contains(involved, k.by.sem) {
				involved = append(involved, k.by.sem)
			}
		}
		if blocked == 0 || blocked != s.Stats().InUse {
			return nil
		}
	}
	return ring
}

func describeRing(ring []blockade) string {
	var b strings.Builder
	b.WriteString("deadlock suspected: every permit of the semaphores below was acquired by somebody who waits for another of them\n")
	for _, k := range ring {
		fmt.Fprintf(&b, "%d of %q, acquired at\n%s  by one who waits for %d of %q at\n%s",
			k.rec.weight, k.rec.sem.name, k.rec.stack, k.by.weight, k.by.sem.name, k.by.stack)
	}
	return b.String()
}

// reportedRings remembers deadlocks, so that late comers do not repeat them.
var reportedRings ringSet

type ringSet struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (s *ringSet) first(ring []blockade) bool {
	ring = slices.Clone(ring)
	slices.SortFunc(ring, func(a, b blockade) int {
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
