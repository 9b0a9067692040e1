package host

import (
	"errors"
	"sync"
	"time"

	"github.com/sema-go/sema"
)

// A lease holds the slots of one permit. Each lease has its own issuer, so that TakeBack
// identifies the slots. It holds a reference to the file until its slots are released.
//
// Without a monitor, a lease is reused by a later permit of the same Semaphore. The
// generation of its handle distinguishes the permits: a copy of an earlier one is not
// held, whatever the lease holds now.
type lease struct {
	sem    *Semaphore
	issuer sema.Issuer

	mu        sync.Mutex // Inherit, Slots, Split and TakeBack may run at the same time
	since     time.Time
	runs      []run      // ascending; nil after the release
	single    [1]run     // backs the runs of most leases
	inherited *inherited // holds the locks instead of the semaphore's file if not nil; see Inherit
}

// newLease returns a lease of claimed slots, and records this process as their holder.
func newLease(s *Semaphore, runs []run) *lease {
	l := s.freeLease()
	now := time.Now()
	l.hold(now, runs)
	s.file.writeRecords(runs, now, false)
	return l
}

// freeLease returns a lease that holds nothing.
func (s *Semaphore) freeLease() *lease {
	if l, ok := s.leases.Get().(*lease); ok {
		return l
	}
	l := &lease{sem: s}
	l.issuer.Init(l, s.monitor)
	return l
}

// hold makes the lease hold claimed slots.
func (l *lease) hold(since time.Time, runs []run) {
	l.mu.Lock()
	l.since, l.runs = since, runs
	l.mu.Unlock()
}

var (
	_ sema.Owner   = (*lease)(nil)
	_ sema.Backing = (*lease)(nil)
)

// Name implements [sema.Owner].
func (l *lease) Name() string { return l.sem.name }

// Lost implements [sema.Backing]. It returns nil: there is no notification of a deleted
// file.
func (l *lease) Lost() <-chan struct{} { return nil }

// Err implements [sema.Backing]. It returns ErrLost if the file is deleted, since
// other processes may use another file.
func (l *lease) Err() error {
	f := l.sem.file
	if err := f.deleted(); errors.Is(err, ErrDeleted) {
		return &sema.Error{Op: "hold", Name: l.sem.name, Err: sema.ErrLost, Detail: f.path + " was deleted"}
	}
	return nil
}

// Slots implements [sema.Permit.Slots].
func (l *lease) Slots() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	slots := make([]int64, 0, weightOf(l.runs))
	for _, r := range l.runs {
		slots = r.appendTo(slots)
	}
	return slots
}

// TakeBack implements [sema.Owner]. It frees the slots.
func (l *lease) TakeBack(int64) {
	f := l.sem.file
	defer f.unref()
	l.mu.Lock()
	runs, holder := l.runs, l.inherited
	l.runs = nil
	l.mu.Unlock()
	if holder == nil {
		f.free(runs)
		if l.sem.monitor == nil {
			l.sem.leases.Put(l)
		}
		return
	}
	f.unlockOn(int(holder.Fd()), runs)
	holder.unref()
	f.wakeFirst()
}

// Split implements [sema.Permit.Split]. The lease keeps its n lowest slots. The result
// issues the permit of the others.
func (l *lease) Split(n int64) *sema.Issuer {
	f := l.sem.file
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := &lease{sem: l.sem, since: l.since, inherited: l.inherited}
	l.runs, rest.runs = splitRuns(l.runs, n)
	rest.issuer.Init(rest, l.sem.monitor)
	f.refs.Add(1) // succeeds: l has a reference
	if l.inherited != nil {
		l.inherited.leases.Add(1)
	}
	f.writeRecords(rest.runs, l.since, l.inherited != nil) // before the records that covered these slots are overwritten
	f.writeRecords(l.runs, l.since, l.inherited != nil)
	return &rest.issuer
}

// splitRuns splits runs after n slots, of which there must be more.
func splitRuns(runs []run, n int64) (a, b []run) {
	for _, r := range runs {
		switch have := weightOf(a); {
		case have == n:
			b = append(b, r)
		case have+int64(r.n) <= n:
			a = append(a, r)
		default:
			cut := uint32(n - have)
			a = append(a, run{r.at, cut})
			b = append(b, run{r.at + cut, r.n - cut})
		}
	}
	return a, b
}
