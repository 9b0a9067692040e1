package sema

import (
	"runtime/pprof"
	"sync"
	"time"
)

// books is who holds and who waits, of all that is recorded in the process.
var books = registry{
	held:        map[*Monitor]map[*record]bool{},
	byGoroutine: map[uint64]map[*record]bool{},
	waiting:     map[*queuedWait]bool{},
}

// A registry is indexed by what the audits ask for at each acquire: what a
// goroutine holds, and who holds a semaphore.
type registry struct {
	mu          sync.Mutex
	held        map[*Monitor]map[*record]bool
	byGoroutine map[uint64]map[*record]bool // goroutine 0, unknown, left out
	waiting     map[*queuedWait]bool
}

// A queuedWait is a recorded caller that waits.
type queuedWait struct {
	monitor *Monitor
	weight  int64
	since   time.Time
	stack   stack
	by      identity
}

var (
	heldProfile    = newProfile("sema.held")
	waitingProfile = newProfile("sema.waiting")
)

func newProfile(name string) *pprof.Profile {
	if p := pprof.Lookup(name); p != nil {
		return p // another copy of the package made it
	}
	return pprof.NewProfile(name)
}

func (b *registry) add(r *record) {
	b.mu.Lock()
	addTo(b.held, r.monitor, r)
	if r.by.goroutine != 0 {
		addTo(b.byGoroutine, r.by.goroutine, r)
	}
	b.mu.Unlock()
	heldProfile.Add(r, libraryDepth()+1)
}

func (b *registry) remove(r *record) {
	b.mu.Lock()
	removeFrom(b.held, r.monitor, r)
	removeFrom(b.byGoroutine, r.by.goroutine, r)
	b.mu.Unlock()
	heldProfile.Remove(r)
}

func addTo[K comparable](index map[K]map[*record]bool, key K, r *record) {
	if index[key] == nil {
		index[key] = map[*record]bool{}
	}
	index[key][r] = true
}

func removeFrom[K comparable](index map[K]map[*record]bool, key K, r *record) {
	delete(index[key], r)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

func (b *registry) startWait(of *Wait) *queuedWait {
	w := &queuedWait{monitor: of.m, weight: of.weight, since: epoch.Add(time.Duration(of.start)), stack: of.more.stack, by: of.more.by}
	b.mu.Lock()
	b.waiting[w] = true
	b.mu.Unlock()
	waitingProfile.Add(w, libraryDepth()+1)
	return w
}

func (b *registry) endWait(w *queuedWait) {
	b.mu.Lock()
	delete(b.waiting, w)
	b.mu.Unlock()
	waitingProfile.Remove(w)
}

// all lists every recorded permit that is out.
func (b *registry) all() []*record {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*record
	for _, records := range b.held {
		for r := range records {
			list = append(list, r)
		}
	}
	return list
}

// heldByGoroutine lists the recorded permits that a goroutine acquired.
func (b *registry) heldByGoroutine(id uint64) []*record {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*record
	for r := range b.byGoroutine[id] {
		list = append(list, r)
	}
	return list
}

// A blockade is a permit whose holder waits.
type blockade struct {
	rec *record
	by  *queuedWait
}

// blockades lists the recorded permits of a gate with the waits of their holders,
// or nothing if a holder does not wait.
func (b *registry) blockades(m *Monitor) []blockade {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []blockade
	for r := range b.held[m] {
		by := b.waitOf(r)
		if by == nil {
			return nil
		}
		list = append(list, blockade{r, by})
	}
	return list
}

func (b *registry) waitOf(r *record) *queuedWait {
	for w := range b.waiting {
		if w.by.has(r) {
			return w
		}
	}
	return nil
}
