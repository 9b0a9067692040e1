// Package waitfor finds possible deadlocks across machines: clients that hold permits which others
// wait for, while they wait for permits that those hold.
//
// What a store knows is joined by client, not by goroutine. So every cycle is possible, not
// certain: the goroutine of a client that holds the permit need not be the one that waits. A cycle
// is reported only if no client in it is seen to be able to go on, see [Cycles].
package waitfor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Client is a holder or a waiter.
type Client struct {
	Instance string // unique instance of a client
	Host     string
	Process  int64 // 0: unknown
	Service  bool  // a server holds the lease for a client of HTTP; Work identifies it
	Work     string
	Weight   int64
	Since    time.Time
}

// key identifies a client across semaphores. A process may have several instances. "": it
// cannot be identified.
func (c Client) key() string {
	switch {
	case c.Service && c.Work == "":
		return ""
	case c.Service:
		return "work " + c.Work
	case c.Host != "" && c.Process != 0:
		return fmt.Sprintf("process %d of %s", c.Process, c.Host)
	}
	return c.Instance
}

// A Semaphore is the state of a semaphore.
type Semaphore struct {
	Name             string
	Free             int64    // permits that could be granted
	Holders, Waiters []Client // the waiters in queue order
}

// A Step of a cycle: a client holds one semaphore and waits for the next one.
type Step struct {
	Client string        `json:"client"` // process and host
	Holds  string        `json:"holds"`  // semaphore
	Waits  string        `json:"waits"`  // semaphore
	Waited time.Duration `json:"-"`
}

// A Cycle is a possible deadlock. The client of each step waits for what that of the next holds.
type Cycle struct{ Steps []Step }

// String describes the cycle in one line.
func (c Cycle) String() string {
	parts := make([]string, len(c.Steps))
	for i, s := range c.Steps {
		parts[i] = fmt.Sprintf("%s holds %s and has waited %v for %s", s.Client, s.Holds, s.Waited.Round(time.Second), s.Waits)
	}
	return strings.Join(parts, "; ")
}

// Caveat states what is not known of a cycle.
const Caveat = "possible deadlock: known by process, not by goroutine; it ends if a wait times out, or if other work of these processes releases a permit"

// LeastWait is how long an acquire must have waited to count: shorter waits are usual contention.
const LeastWait = 5 * time.Second

// Cycles returns one cycle of each group of clients that wait for each other. A semaphore is
// stuck if the permits of clients that can go on do not suffice for its first waiter. A client
// can go on if
//
//   - it waits for no stuck semaphore, or for less than [LeastWait], or
//   - it has more leases on stuck semaphores than waits: some of its work holds a permit without
//     waiting, and will release it.
//
// A client that waits only for itself is no cycle: goroutines of one process usually share a
// semaphore.
func Cycles(all []Semaphore, now time.Time) []Cycle {
	g := newGraph(all, now)
	for g.removeLive() {
	}
	return g.cycles()
}

// A graph contains the clients that may be stuck.
type graph struct {
	semaphores map[string]*Semaphore
	waits      map[string]map[string]time.Duration // client, semaphore: the longest wait
	waiting    map[string]int                      // client: number of queued acquires that count
	stuck      map[string]bool                     // clients
	blocked    map[string]bool                     // semaphores
}

func newGraph(all []Semaphore, now time.Time) *graph {
	g := &graph{map[string]*Semaphore{}, map[string]map[string]time.Duration{}, map[string]int{}, map[string]bool{}, map[string]bool{}}
	for i, s := range all {
		g.semaphores[s.Name] = &all[i]
		for _, w := range s.Waiters {
			key, waited := w.key(), now.Sub(w.Since)
			if key == "" || waited < LeastWait {
				continue
			}
			if g.waits[key] == nil {
				g.waits[key] = map[string]time.Duration{}
			}
			g.waits[key][s.Name] = max(g.waits[key][s.Name], waited)
			g.waiting[key]++
			g.stuck[key], g.blocked[s.Name] = true, true
		}
	}
	return g
}

// removeLive removes clients and semaphores that can go on. It reports whether there was one.
func (g *graph) removeLive() (changed bool) {
	for name := range g.blocked {
		s := g.semaphores[name]
		available := s.Free
		for _, h := range s.Holders {
			if key := h.key(); key == "" || !g.stuck[key] {
				available += h.Weight
			}
		}
		if available >= max(1, s.Waiters[0].Weight) {
			delete(g.blocked, name)
			changed = true
		}
	}
	leases := map[string]int{}
	for name := range g.blocked {
		for _, h := range g.semaphores[name].Holders {
			leases[h.key()]++
		}
	}
	for key := range g.stuck {
		waits := false
		for name := range g.waits[key] {
			waits = waits || g.blocked[name]
		}
		if !waits || leases[key] > g.waiting[key] {
			delete(g.stuck, key)
			changed = true
		}
	}
	return changed
}

// cycles returns one cycle through each group of clients that is left.
func (g *graph) cycles() (found []Cycle) {
	clients := make([]string, 0, len(g.stuck))
	for key := range g.stuck {
		clients = append(clients, key)
	}
	slices.Sort(clients)
	reported := map[string]bool{}
	for _, key := range clients {
		if reported[key] {
			continue
		}
		if c, ok := g.cycleFrom(key); ok {
			found = append(found, c)
			for _, s := range c.Steps {
				reported[s.Client] = true
			}
		}
	}
	return found
}

// cycleFrom returns the shortest cycle through a client and at least one other (breadth first).
func (g *graph) cycleFrom(start string) (Cycle, bool) {
	type arrival struct{ from, over string } // the client that waits, and the semaphore
	came := map[string]arrival{}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, name := range g.waitsOf(at) {
			for _, h := range g.semaphores[name].Holders {
				next := h.key()
				if next == start && at != start {
					came[start] = arrival{at, name}
					return g.path(start, func(k string) (string, string) { return came[k].from, came[k].over }), true
				}
				if _, seen := came[next]; seen || next == start || !g.stuck[next] {
					continue
				}
				came[next] = arrival{at, name}
				queue = append(queue, next)
			}
		}
	}
	return Cycle{}, false
}

func (g *graph) waitsOf(client string) (names []string) {
	for name := range g.waits[client] {
		if g.blocked[name] {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(a, b) })
	return names
}

// path returns the steps of a cycle that ends at a client.
func (g *graph) path(start string, before func(string) (from, over string)) (c Cycle) {
	for at := start; ; {
		from, over := before(at)
		c.Steps = append(c.Steps, Step{Client: from, Waits: over, Waited: g.waits[from][over]})
		if at = from; at == start {
			break
		}
	}
	slices.Reverse(c.Steps)
	for i := range c.Steps { // a client holds what the one before it waits for
		c.Steps[i].Holds = c.Steps[(i+len(c.Steps)-1)%len(c.Steps)].Waits
	}
	return c
}
