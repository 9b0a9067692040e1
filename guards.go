package sema

import "slices"

// A guard is a permit that a caller holds while it acquires one gate under another. The callers of a circle of
// orders block each other only if each of them holds and waits at the same time. If all of them must hold permits
// of one semaphore for that, and these do not fit into its capacity, the circle cannot close: a lock around both,
// or the arbiter of n-1 permits at a table of n forks.
type guard struct {
	name             string
	weight, capacity int64
}

// guardsOf returns the other permits of a caller that acquires wanted while it holds held. Only semaphores with a
// name count, as in the graph of orders.
func guardsOf(holds []hold, held hold, wanted string) (guards []guard) {
	for _, h := range holds {
		if h.name == "" || h.name == held.name || h.name == wanted || h.monitor == nil || h.monitor.core == nil {
			continue
		}
		if i := slices.IndexFunc(guards, func(g guard) bool { return g.name == h.name }); i >= 0 {
			guards[i].weight += h.weight
			continue
		}
		guards = append(guards, guard{h.name, h.weight, h.monitor.core.stats().Capacity})
	}
	return guards
}

// narrow returns what two observations of an order have in common, and whether that is less than before.
func narrow(before, now []guard) (both []guard, less bool) {
	for _, g := range before {
		i := slices.IndexFunc(now, func(o guard) bool { return o.name == g.name })
		if i < 0 {
			continue
		}
		both = append(both, guard{g.name, min(g.weight, now[i].weight), max(g.capacity, now[i].capacity)})
	}
	return both, !slices.Equal(both, before)
}

// together returns the guards that two parts of a circle have in common, with the sum of their weights.
func together(a, b []guard) (both []guard) {
	for _, g := range a {
		if i := slices.IndexFunc(b, func(o guard) bool { return o.name == g.name }); i >= 0 {
			both = append(both, guard{g.name, g.weight + b[i].weight, max(g.capacity, b[i].capacity)})
		}
	}
	return both
}

// fit reports whether permits of all guards can be held at the same time.
func fit(guards []guard) bool {
	return !slices.ContainsFunc(guards, func(g guard) bool { return g.weight > g.capacity })
}

// maxCircles bounds the search for a circle that can close.
const maxCircles = 10_000

// closing returns a path from wanted back to held whose circle can close, now that the edge from held to wanted has
// these guards. It is nil if there is none, or if that edge is known, and each such circle could close before.
func (g *orderGraph) closing(held, wanted string, before, now []guard, known bool) []string {
	first := g.path(wanted, held, map[string]bool{})
	if first == nil || !known && len(now) == 0 {
		return first
	}
	var found []string
	visits := 0
	var visit func(path []string, before, now []guard)
	visit = func(path []string, before, now []guard) {
		visits++
		if found != nil || visits > maxCircles || known && len(before) == 0 {
			return
		}
		at := path[len(path)-1]
		if at == held {
			if fit(now) && !(known && fit(before)) {
				found = slices.Clone(path)
			}
			return
		}
		for next, e := range g.edges[at] {
			if !slices.Contains(path, next) {
				visit(append(path, next), together(before, e.guards), together(now, e.guards))
			}
		}
	}
	visit([]string{wanted}, before, now)
	return found
}
