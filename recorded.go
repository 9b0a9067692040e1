package sema

import (
	"runtime/pprof"
	"sync"
	"time"
)

// recorded has all permits and waits of the process that are recorded.
var recorded = recordIndex{
	held:        map[*Monitor]map[*record]bool{},
	byGoroutine: map[uint64]map[*record]bool{},
	waiting:     map[*queuedWait]bool{},
	pending:     map[*record]map[*Monitor]pendingOrder{},
}

// A recordIndex is indexed by what the audits ask for at each acquire: what a
// goroutine holds, and who holds a semaphore.
type recordIndex struct {
	mu          sync.Mutex
	held        map[*Monitor]map[*record]bool
	byGoroutine map[uint64]map[*record]bool // goroutine 0, unknown, left out
	waiting     map[*queuedWait]bool
	pending     map[*record]map[*Monitor]pendingOrder // what was acquired while a permit was held
}

// A queuedWait is a recorded caller that waits.
type queuedWait struct {
	monitor *Monitor
	weight  int64
	since   time.Time
	stack   stack
	by      identity
	check   *time.Timer // looks for a deadlock
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

func (b *recordIndex) add(r *record) {
	b.mu.Lock()
	addTo(b.held, r.monitor, r)
	if r.by.goroutine != 0 && !r.handedOver {
		addTo(b.byGoroutine, r.by.goroutine, r)
	}
	b.mu.Unlock()
	heldProfile.Add(r, libraryDepth()+1)
}

func (b *recordIndex) remove(r *record) {
	b.mu.Lock()
	removeFrom(b.held, r.monitor, r)
	removeFrom(b.byGoroutine, r.by.goroutine, r)
	delete(b.pending, r)
	b.mu.Unlock()
	heldProfile.Remove(r)
}

func (b *recordIndex) addPending(held *record, wanted *Monitor, o pendingOrder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.held[held.monitor][held] {
		return // released meanwhile, by another goroutine
	}
	if b.pending[held] == nil {
		b.pending[held] = map[*Monitor]pendingOrder{}
	}
	if _, known := b.pending[held][wanted]; !known && len(b.pending[held]) < mostPending {
		b.pending[held][wanted] = o
	}
}

// pendingOf returns what was acquired while a permit that ends was held.
func (b *recordIndex) pendingOf(r *record) map[*Monitor]pendingOrder {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pending[r]
}

// unbook takes a permit off the goroutine that acquired it.
func (b *recordIndex) unbook(r *record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	removeFrom(b.byGoroutine, r.by.goroutine, r)
}

// isWaiting reports whether a wait has not ended.
func (b *recordIndex) isWaiting(w *queuedWait) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting[w]
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

func (b *recordIndex) startWait(of *Wait) *queuedWait {
	w := &queuedWait{monitor: of.m, weight: of.weight, since: epoch.Add(time.Duration(of.start)), stack: of.more.stack, by: of.more.by}
	if of.m.level > DiagnoseOff && !of.more.detached && !of.m.signals {
		w.check = time.AfterFunc(deadlockAfter, func() { w.monitor.auditDeadlock(w) })
	}
	b.mu.Lock()
	b.waiting[w] = true
	b.mu.Unlock()
	waitingProfile.Add(w, libraryDepth()+1)
	return w
}

func (b *recordIndex) endWait(w *queuedWait) {
	if w.check != nil {
		w.check.Stop()
	}
	b.mu.Lock()
	delete(b.waiting, w)
	b.mu.Unlock()
	waitingProfile.Remove(w)
}

// all lists every recorded permit that is held.
func (b *recordIndex) all() []*record {
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
func (b *recordIndex) heldByGoroutine(id uint64) []*record {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*record
	for r := range b.byGoroutine[id] {
		list = append(list, r)
	}
	return list
}

// A blockade is a permit whose holder waits.
type blockedPermit struct {
	rec *record
	by  *queuedWait
}

// blockades lists the recorded permits of a gate with the waits of their holders,
// or nothing if a holder does not wait.
func (b *recordIndex) blockedPermits(m *Monitor) []blockedPermit {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []blockedPermit
	for r := range b.held[m] {
		by := b.waitOf(r)
		if by == nil {
			return nil
		}
		list = append(list, blockedPermit{r, by})
	}
	return list
}

// waitOf returns the wait of the holder of a permit. The mutex is held.
func (b *recordIndex) waitOf(r *record) *queuedWait {
	for w := range b.waiting {
		if w.by.contextHas(r) || b.byGoroutine[w.by.goroutine][r] {
			return w
		}
	}
	return nil
}
