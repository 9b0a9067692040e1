package classic

import (
	"context"
	"sync"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/list"
)

// An rwGate is one side of a lock: its readers or its writers.
type rwGate struct {
	facility
	lock     *RWLock
	capacity int64
	issuer   sema.Issuer

	queue  list.List[*rwWaiter] // in order of arrival; RWLock.mu guards it and the counts
	counts sema.Counts          // without Acquired
}

var _ sema.Gate = (*rwGate)(nil)

func (g *rwGate) init(l *RWLock, class string, capacity int64, whole *sema.Monitor, opts []sema.SharedOption) {
	g.lock, g.capacity = l, capacity
	g.facility.init(opts, g.Stats)
	g.monitor = whole.ForPart(g, class)
	g.issuer.Init((*rwOwner)(g), g.monitor)
}

// Name returns the name of the lock.
func (g *rwGate) Name() string { return g.Settings.Name }

// String returns the state of the lock.
func (g *rwGate) String() string { return g.lock.String() }

// Stats returns the state of this side.
func (g *rwGate) Stats() sema.Stats {
	g.lock.mu.Lock()
	defer g.lock.mu.Unlock()
	return g.statsLocked()
}

func (g *rwGate) statsLocked() sema.Stats {
	l := g.lock
	st := sema.Stats{Capacity: g.capacity, Waiters: g.queue.Len(), Closed: l.closed, Counts: g.counts}
	st.Acquired = g.issuer.Issued()
	switch {
	case g == &l.read:
		st.InUse = l.readers
	case l.writing:
		st.InUse = 1
	}
	if !l.writing && (g == &l.read || l.readers == 0) {
		st.Free = g.capacity - st.InUse
	}
	return st
}

// Acquire implements [sema.Gate].
func (g *rwGate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "acquire"
	if n <= 0 || ctx == nil || ctx.Err() != nil {
		return g.decideAtOnce(ctx, op, n)
	}
	watch := g.monitor.Begin(ctx, n)
	g.lock.mu.Lock()
	err := g.takeLocked(n)
	if err == sema.ErrFull && g.monitor != nil && g.mayQueue(g.queue.Len()) {
		g.lock.mu.Unlock()
		watch.Queued() // before the caller is queued: observers may be slow
		g.lock.mu.Lock()
		if ctx.Err() == nil { // or else the wait ends at once
			err = g.takeLocked(n)
		}
	}
	if err == sema.ErrFull {
		err = g.waitLocked(ctx, n)
	} else {
		g.lock.mu.Unlock()
	}
	return g.grant(&watch, op, n, err)
}

// TryAcquire implements [sema.Gate].
func (g *rwGate) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	const op = "try"
	if n <= 0 || ctx == nil || ctx.Err() != nil {
		return g.decideAtOnce(ctx, op, n)
	}
	g.lock.mu.Lock()
	err := g.takeLocked(n)
	if err == sema.ErrFull {
		g.counts.Failed(err, false)
	}
	g.lock.mu.Unlock()
	watch := g.monitor.BeginTry(ctx, n)
	return g.grant(&watch, op, n, err)
}

// decideAtOnce handles calls that need not look at the lock.
func (g *rwGate) decideAtOnce(ctx context.Context, op string, n int64) (sema.Permit, error) {
	var err error
	switch {
	case ctx == nil:
		err = errNilContext
	case n < 0:
		err = errNegative
	case ctx.Err() != nil:
		err = cancelled{context.Cause(ctx)}
	case g.Stats().Closed:
		err = sema.ErrClosed
	default:
		return sema.Permit{}, nil
	}
	watch := g.monitor.BeginTry(ctx, n)
	return sema.Permit{}, watch.Failed(g.fault(op, n, err))
}

// grant returns the permit of a call, or its error with the facts.
func (g *rwGate) grant(watch *sema.Wait, op string, n int64, err error) (sema.Permit, error) {
	if err != nil {
		return sema.Permit{}, watch.Failed(g.fault(op, n, err))
	}
	return watch.Granted(&g.issuer), nil
}

// takeLocked takes n permits if the lock would serve the caller before all waiters. It
// fails with a sentinel; ErrFull is not counted, since the caller may wait.
func (g *rwGate) takeLocked(n int64) error {
	l := g.lock
	var err error
	switch {
	case l.closed:
		err = sema.ErrClosed
	case n > g.capacity:
		err = sema.ErrTooLarge
	case g.queue.Len() > 0 || !g.precedesLocked() || !g.fitsLocked(n):
		return sema.ErrFull
	default:
		g.holdLocked(n)
		return nil
	}
	g.counts.Failed(err, false)
	return err
}

// precedesLocked reports whether a caller that arrives now goes before the waiters of the
// other side.
func (g *rwGate) precedesLocked() bool {
	l := g.lock
	other := &l.read
	if g == other {
		other = &l.write
	}
	return other.queue.Len() == 0 || g == l.preferred()
}

// preferred returns the side that is served first, nil if it is the order of arrival.
func (l *RWLock) preferred() *rwGate {
	switch l.preference {
	case PreferReaders:
		return &l.read
	case PreferWriters:
		return &l.write
	}
	return nil
}

// fitsLocked reports whether the state of the lock allows n more permits of this side.
func (g *rwGate) fitsLocked(n int64) bool {
	l := g.lock
	if g == &l.write {
		return !l.writing && l.readers == 0
	}
	return !l.writing && n <= g.capacity-l.readers
}

func (g *rwGate) holdLocked(n int64) {
	if g == &g.lock.write {
		g.lock.writing = true
	} else {
		g.lock.readers += n
	}
}

// returnLocked ends a hold, and serves waiters.
func (g *rwGate) returnLocked(n int64) {
	if g == &g.lock.write {
		g.lock.writing = false
	} else {
		g.lock.readers -= n
	}
	g.lock.serveLocked()
}

// An rwOwner is an rwGate with the methods that its issuer calls.
type rwOwner rwGate

// Name implements [sema.Owner].
func (o *rwOwner) Name() string { return o.Settings.Name }

// TakeBack implements [sema.Owner].
func (o *rwOwner) TakeBack(n int64) {
	o.lock.mu.Lock()
	(*rwGate)(o).returnLocked(n)
	o.lock.mu.Unlock()
}

// An rwWaiter is a caller in the queue of its side. RWLock.mu guards it while it is queued.
type rwWaiter struct {
	gate    *rwGate
	n       int64
	arrival uint64
	err     error // why it was removed from the queue; nil: it holds its permits
	node    list.Node[*rwWaiter]
	parking
}

// rwWaiters are waiters that were used before.
var rwWaiters sync.Pool

// waitLocked queues the caller until it is served, its context ends or MaxWait passes. It
// unlocks the mutex.
func (g *rwGate) waitLocked(ctx context.Context, n int64) error {
	l := g.lock
	if !g.mayQueue(g.queue.Len()) {
		g.counts.Failed(sema.ErrQueueFull, false)
		l.mu.Unlock()
		return sema.ErrQueueFull
	}
	w := g.newWaiter(n)
	l.arrivals++
	w.arrival = l.arrivals
	g.queue.PushBack(&w.node)
	g.counts.Waited++
	l.mu.Unlock()
	err := w.settle(ctx, w.await(ctx, g.MaxWait))
	w.recycle()
	return err
}

func (g *rwGate) newWaiter(n int64) *rwWaiter {
	reused := mayReuse()
	if reused {
		if w, ok := rwWaiters.Get().(*rwWaiter); ok {
			w.gate, w.n = g, n
			return w
		}
	}
	w := &rwWaiter{gate: g, n: n, parking: newParking(reused)}
	w.node.Of = w
	return w
}

// recycle keeps a waiter for later callers. It is in no queue, and wake is empty.
func (w *rwWaiter) recycle() {
	if w.reused {
		w.gate, w.err = nil, nil
		rwWaiters.Put(w)
	}
}

// settle returns the result of a wait that ended with err. A caller whose context has ended
// gets nothing, also if it was served in the same instant: others then are.
func (w *rwWaiter) settle(ctx context.Context, err error) error {
	if err == nil && (w.err != nil || ctx.Err() == nil) {
		return w.err
	}
	g := w.gate
	g.lock.mu.Lock()
	defer g.lock.mu.Unlock()
	if w.node.In() { // then err is not nil
		g.queue.Remove(&w.node)
		g.counts.Failed(err, true)
		g.lock.serveLocked() // a waiter that gives up no longer delays those behind it
		return err
	}
	if err != nil {
		<-w.wake // sent before the mutex was unlocked
	}
	if w.err == nil && ctx.Err() != nil {
		err = cancelled{context.Cause(ctx)}
		g.counts.Failed(err, true)
		g.returnLocked(w.n)
		return err
	}
	return w.err
}

// endLocked removes a waiter from its queue and wakes it. err is nil if it was served.
func (w *rwWaiter) endLocked(err error) {
	w.gate.queue.Remove(&w.node)
	w.err = err
	w.wake <- struct{}{} // buffered: does not block
}

// serveLocked serves waiters while the lock allows it.
func (l *RWLock) serveLocked() {
	for {
		w := l.nextLocked()
		if w == nil || !w.gate.fitsLocked(w.n) {
			return
		}
		w.gate.holdLocked(w.n)
		w.endLocked(nil)
	}
}

// nextLocked returns the waiter that is served next, nil if there is none.
func (l *RWLock) nextLocked() *rwWaiter {
	r, w := l.read.queue.First(), l.write.queue.First()
	switch {
	case r == nil && w == nil:
		return nil
	case w == nil:
		return r.Of
	case r == nil:
		return w.Of
	}
	if first := l.preferred(); first == &l.read || first == nil && r.Of.arrival < w.Of.arrival {
		return r.Of
	}
	return w.Of
}
