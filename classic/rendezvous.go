package classic

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/describe"
	"github.com/sema-go/sema/internal/list"
)

// A Rendezvous is where goroutines meet in pairs and exchange values: neither passes before
// the other has come. Create it with [NewRendezvous]. It is safe for concurrent use.
//
// Any number of goroutines may use it. Each one that comes meets the one that has waited
// longest. For an exchange between two roles, such as client and server, that must not meet
// their own kind, use two [Buffer]s or one channel of each direction.
type Rendezvous[T any] struct {
	facility
	waiters sync.Pool // of *guest[T]

	mu     sync.Mutex // guards what follows
	queue  list.List[*guest[T]]
	closed bool
	counts sema.Counts
}

// A guest is a call of Meet. Rendezvous.mu guards it while it is in the queue.
type guest[T any] struct {
	value T // its own, and that of the partner once they have met
	err   error
	node  list.Node[*guest[T]]
	parking
}

// NewRendezvous returns a rendezvous. Its options are [sema.Name], [sema.MaxWait],
// [sema.MaxWaiters] and those for observers and diagnostics.
func NewRendezvous[T any](opts ...sema.SharedOption) *Rendezvous[T] {
	r := &Rendezvous[T]{}
	r.facility.init(opts, r.Stats)
	r.monitor = monitorSignals(opts, r.Stats)
	return r
}

// Meet waits for a partner, gives it v and returns the partner's value. It fails with the
// context's cause, [sema.ErrTimeout] or [sema.ErrQueueFull] (options MaxWait and MaxWaiters),
// [sema.ErrClosed], or [sema.ErrInvalid] if ctx is nil. Two goroutines have met or neither
// has: a goroutine whose context ends at the same instant returns the partner's value.
func (r *Rendezvous[T]) Meet(ctx context.Context, v T) (other T, err error) {
	const op = "meet"
	watch := r.monitor.BeginTry(ctx, 1)
	if ctx == nil {
		return other, watch.Failed(r.fault(op, 0, errNilContext))
	}
	if ctx.Err() != nil {
		return other, watch.Failed(context.Cause(ctx))
	}
	r.mu.Lock()
	other, met, err := r.meetLocked(v)
	if !met && err == nil && r.monitor != nil && r.mayQueue(0) {
		r.mu.Unlock()
		watch.Queued() // before the caller is queued: observers may be slow
		if ctx.Err() != nil {
			return other, watch.Failed(context.Cause(ctx))
		}
		r.mu.Lock()
		other, met, err = r.meetLocked(v)
	}
	switch {
	case met || err != nil:
		r.mu.Unlock()
	case !r.mayQueue(0): // a caller that waits is the only one
		err = sema.ErrQueueFull
		r.counts.Failed(err, false)
		r.mu.Unlock()
	default:
		other, err = r.waitLocked(ctx, v)
	}
	return other, r.conclude(&watch, op, err)
}

// TryMeet exchanges values with a goroutine that waits in [Rendezvous.Meet], and reports
// whether there was one.
func (r *Rendezvous[T]) TryMeet(v T) (other T, ok bool) {
	const op = "try"
	r.mu.Lock()
	other, ok, err := r.meetLocked(v)
	if !ok && err == nil {
		err = sema.ErrFull
		r.counts.Failed(err, false)
	}
	r.mu.Unlock()
	if r.monitor != nil {
		watch := r.monitor.BeginTry(context.Background(), 1)
		_ = r.conclude(&watch, op, err)
	}
	return other, ok
}

// meetLocked meets the goroutine that has waited longest, if there is one.
func (r *Rendezvous[T]) meetLocked(v T) (other T, met bool, err error) {
	if r.closed {
		r.counts.Failed(sema.ErrClosed, false)
		return other, false, sema.ErrClosed
	}
	first := r.queue.First()
	if first == nil {
		return other, false, nil
	}
	g := first.Of
	other, g.value = g.value, v
	r.endLocked(g, nil)
	r.counts.Acquired += 2
	return other, true, nil
}

// endLocked removes a guest from the queue and wakes it.
func (r *Rendezvous[T]) endLocked(g *guest[T], err error) {
	r.queue.Remove(&g.node)
	g.err = err
	g.wake <- struct{}{} // buffered: does not block
}

// waitLocked waits for a partner. It unlocks the mutex.
func (r *Rendezvous[T]) waitLocked(ctx context.Context, v T) (other T, err error) {
	g := r.newGuest()
	defer r.recycle(g)
	g.value = v
	r.queue.PushBack(&g.node)
	r.counts.Waited++
	r.mu.Unlock()
	if err := g.await(ctx, r.MaxWait); err != nil && r.giveUp(g, err) {
		return other, err
	}
	if g.err != nil {
		return other, g.err
	}
	return g.value, nil
}

// giveUp removes a guest from the queue. It returns false if its wait has ended in the same
// instant.
func (r *Rendezvous[T]) giveUp(g *guest[T], why error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !g.node.In() {
		<-g.wake // sent before the mutex was unlocked
		return false
	}
	r.queue.Remove(&g.node)
	r.counts.Failed(why, true)
	return true
}

// newGuest returns a guest, in general one that was used before.
func (r *Rendezvous[T]) newGuest() *guest[T] {
	reused := mayReuse()
	if reused {
		if g, ok := r.waiters.Get().(*guest[T]); ok {
			return g
		}
	}
	g := &guest[T]{parking: newParking(reused)}
	g.node.Of = g
	return g
}

// recycle keeps a guest for later callers. It is not in the queue, and wake is empty.
func (r *Rendezvous[T]) recycle(g *guest[T]) {
	if g.reused {
		var none T
		g.value, g.err = none, nil
		r.waiters.Put(g)
	}
}

// Close rejects goroutines that wait, and those that come, with [sema.ErrClosed]. It always
// returns nil.
func (r *Rendezvous[T]) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	for g := range r.queue.All {
		r.counts.Failed(sema.ErrClosed, true)
		r.endLocked(g, sema.ErrClosed)
	}
	r.mu.Unlock()
	r.monitor.Report(sema.Event{Kind: sema.EventClosed})
	return nil
}

// Name returns the name that the option [sema.Name] set, or "".
func (r *Rendezvous[T]) Name() string { return r.Settings.Name }

// Stats returns a snapshot: Waiters is 0 or 1, and Acquired counts the calls that have met
// a partner. Capacity, InUse, Free and WaitTime are 0.
func (r *Rendezvous[T]) Stats() sema.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sema.Stats{Waiters: r.queue.Len(), Closed: r.closed, Counts: r.counts}
}

// String returns the name and the state in one line.
func (r *Rendezvous[T]) String() string {
	st := r.Stats()
	return fmt.Sprintf("%s: %d pairs have met, %d waiting%s", describe.Title("rendezvous", r.Name()), st.Acquired/2, st.Waiters, suffix(st.Closed))
}

// GoString returns the same as String.
func (r *Rendezvous[T]) GoString() string { return r.String() }

// LogValue implements [slog.LogValuer].
func (r *Rendezvous[T]) LogValue() slog.Value { return slog.StringValue(r.String()) }
