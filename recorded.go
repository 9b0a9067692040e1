package sema

import (
	"runtime/pprof"
	"sync"
	"time"

	"github.com/sema-go/sema/internal/monotonic"
)

// recorded contains all recorded permits and waits of the process.
var recorded = recordIndex{
	held:        map[*Monitor]map[*record]bool{},
	byGoroutine: map[uint64]map[*record]bool{},
	waiting:     map[*queuedWait]bool{},
	pending:     map[*record]map[*Monitor]pendingOrder{},
}

// A recordIndex is indexed by the queries that the audits make at each acquire: the
// permits of a goroutine, and the holders of a semaphore.
type recordIndex struct {
	mu          sync.Mutex
	held        map[*Monitor]map[*record]bool
	byGoroutine map[uint64]map[*record]bool // without goroutine 0, which means unknown
	waiting     map[*queuedWait]bool
	pending     map[*record]map[*Monitor]pendingOrder // the acquires made while a permit was held
}

// A queuedWait is a recorded caller that waits.
type queuedWait struct {
	monitor *Monitor
	weight  int64
	since   time.Time
	stack   stack
	caller  identity
	check   *time.Timer // runs auditDeadlock; nil: no check
}

var (
	heldProfile    = newProfile("sema.held")
	waitingProfile = newProfile("sema.waiting")
)

func newProfile(name string) *pprof.Profile {
	if p := pprof.Lookup(name); p != nil {
		return p // created by another copy of the package
	}
	return pprof.NewProfile(name)
}

func (b *recordIndex) add(r *record) {
	b.mu.Lock()
	addTo(b.held, r.monitor.audited(), r)
	if r.caller.goroutine != 0 && !r.handedOver {
		addTo(b.byGoroutine, r.caller.goroutine, r)
	}
	b.mu.Unlock()
	heldProfile.Add(r, libraryDepth()+1)
}

func (b *recordIndex) remove(r *record) {
	b.mu.Lock()
	removeFrom(b.held, r.monitor.audited(), r)
	removeFrom(b.byGoroutine, r.caller.goroutine, r)
	delete(b.pending, r)
	b.mu.Unlock()
	heldProfile.Remove(r)
}

func (b *recordIndex) addPending(held *record, wanted *Monitor, o pendingOrder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.held[held.monitor.audited()][held] {
		return // released meanwhile, by another goroutine
	}
	if b.pending[held] == nil {
		b.pending[held] = map[*Monitor]pendingOrder{}
	}
	switch was, known := b.pending[held][wanted]; {
	case known:
		was.guards, _ = narrow(was.guards, o.guards)
		b.pending[held][wanted] = was
	case len(b.pending[held]) < maxPending:
		b.pending[held][wanted] = o
	}
}

// pendingOf returns the acquires made while the permit of r was held.
func (b *recordIndex) pendingOf(r *record) map[*Monitor]pendingOrder {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pending[r]
}

// clearGoroutine removes the attribution of a permit to the goroutine that acquired it.
func (b *recordIndex) clearGoroutine(r *record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	removeFrom(b.byGoroutine, r.caller.goroutine, r)
}

// isWaiting reports whether the caller of w still waits.
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
	w := &queuedWait{monitor: of.m, weight: of.weight, since: monotonic.Time(time.Duration(of.start)), stack: of.trace.stack, caller: of.trace.caller}
	if of.m.level > DiagnoseOff && !of.trace.detached && !of.m.signals {
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

// all returns all recorded permits that are held.
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

// heldByGoroutine returns the recorded permits attributed to a goroutine.
func (b *recordIndex) heldByGoroutine(id uint64) []*record {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*record
	for r := range b.byGoroutine[id] {
		list = append(list, r)
	}
	return list
}

// A blockedPermit is a permit whose holder waits.
type blockedPermit struct {
	rec  *record
	wait *queuedWait
}

// blockedPermits returns the recorded permits of a gate with the waits of their
// holders, or nil if a holder does not wait.
func (b *recordIndex) blockedPermits(m *Monitor) []blockedPermit {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []blockedPermit
	for r := range b.held[m] {
		wait := b.waitOfLocked(r)
		if wait == nil {
			return nil
		}
		list = append(list, blockedPermit{r, wait})
	}
	return list
}

// waitOfLocked returns the wait of the holder of a permit, or nil.
func (b *recordIndex) waitOfLocked(r *record) *queuedWait {
	for w := range b.waiting {
		if w.caller.holdsByContext(r) || b.byGoroutine[w.caller.goroutine][r] {
			return w
		}
	}
	return nil
}
