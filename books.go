package sema

import (
	"runtime/pprof"
	"sync"
	"time"
)

// books is who holds and who waits, of all that is recorded in the process.
var books = registry{
	held:        map[*Semaphore]map[*record]bool{},
	byGoroutine: map[uint64]map[*record]bool{},
	waiting:     map[*wait]bool{},
}

// A registry is indexed by what the audits ask for at each acquire: what a
// goroutine holds, and who holds a semaphore.
type registry struct {
	mu          sync.Mutex
	held        map[*Semaphore]map[*record]bool
	byGoroutine map[uint64]map[*record]bool // goroutine 0, unknown, left out
	waiting     map[*wait]bool
}

// A wait is a recorded caller in line.
type wait struct {
	sem    *Semaphore
	weight int64
	since  time.Time
	stack  stack
	who    identity
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
	addTo(b.held, r.sem, r)
	if r.who.goroutine != 0 {
		addTo(b.byGoroutine, r.who.goroutine, r)
	}
	b.mu.Unlock()
	heldProfile.Add(r, libraryDepth()+1)
}

func (b *registry) remove(r *record) {
	b.mu.Lock()
	removeFrom(b.held, r.sem, r)
	removeFrom(b.byGoroutine, r.who.goroutine, r)
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

func (b *registry) startWait(s *Semaphore, a attempt, id identity) *wait {
	w := &wait{sem: s, weight: a.weight, since: a.start, stack: a.stack, who: id}
	b.mu.Lock()
	b.waiting[w] = true
	b.mu.Unlock()
	waitingProfile.Add(w, libraryDepth()+1)
	return w
}

func (b *registry) endWait(w *wait) {
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
	by  *wait
}

// blockades lists the recorded permits of s with the waits of their holders,
// or nothing if there is a holder who does not wait.
func (b *registry) blockades(s *Semaphore) []blockade {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []blockade
	for r := range b.held[s] {
		by := b.waitOf(r)
		if by == nil {
			return nil
		}
		list = append(list, blockade{r, by})
	}
	return list
}

func (b *registry) waitOf(r *record) *wait {
	for w := range b.waiting {
		if w.who.has(r) {
			return w
		}
	}
	return nil
}
