package classic

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/describe"
)

// A Barrier lets a number of goroutines, its parties, start each phase together: none passes
// before all have come. Then the next phase begins. Create it with [NewBarrier]. It is safe
// for concurrent use.
//
// A phase counts for all parties or for none. If one gives up, because its context ends or
// MaxWait passes, the phase can never be complete. So the barrier is broken then: all others
// get [ErrBroken] at once, instead of waiting for ever, until [Barrier.Reset].
type Barrier struct {
	facility
	parties int

	mu     sync.Mutex // guards what follows
	phase  *phase     // the one that parties wait for
	broken string     // why; "": it is not
	closed bool
	counts sema.Counts
}

// A phase of a barrier. Barrier.mu guards its fields until done is closed.
type phase struct {
	done    chan struct{} // closed at its end
	arrived int
	ended   bool
	err     error // nil: all parties have come
}

// ErrBroken is the error of a [Barrier] that one of its parties has left. It is wrapped in a
// [sema.Error] whose Detail contains the reason.
var ErrBroken error = brokenError{}

type brokenError struct{}

// Error implements error.
func (brokenError) Error() string { return "barrier broken" }

// Reason returns the word that [sema.Reason] returns.
func (brokenError) Reason() string { return "broken" }

// Hint returns the text that [sema.Hint] returns.
func (brokenError) Hint() string {
	return "stop the other parties, or call Reset once all of them have noticed"
}

// NewBarrier returns a barrier for a number of parties. It panics unless that is positive.
// Its options are [sema.Name], [sema.MaxWait] and those for observers and diagnostics.
// [sema.MaxWaiters] has no effect: all parties but one have to wait.
func NewBarrier(parties int, opts ...sema.SharedOption) *Barrier {
	if parties < 1 {
		panic(fmt.Sprintf("classic: NewBarrier(%d): want a positive number of parties", parties))
	}
	b := &Barrier{parties: parties, phase: newPhase()}
	b.facility.init(opts, b.Stats)
	b.monitor = monitorSignals(opts, b.Stats)
	return b
}

func newPhase() *phase { return &phase{done: make(chan struct{})} }

// Wait waits until all parties have called it. It returns true for one of them: the party
// that came last. So that one can do what has to be done once in each phase.
//
// It fails with the context's cause or [sema.ErrTimeout] (option MaxWait), and breaks the
// barrier then, also if the context had ended before. It fails with [ErrBroken] if the
// barrier is broken, [sema.ErrClosed] if it is closed, and [sema.ErrInvalid] if ctx is nil. If
// all parties have come, Wait returns no error, also if the context ends at the same instant.
func (b *Barrier) Wait(ctx context.Context) (last bool, err error) {
	const op = "wait"
	watch := b.monitor.BeginTry(ctx, 1)
	if ctx == nil {
		return false, watch.Failed(b.fault(op, 0, errNilContext))
	}
	if b.monitor != nil && b.mustWait() {
		watch.Queued() // before the caller is counted: observers may be slow
	}
	b.mu.Lock()
	p, last, err := b.arriveLocked(ctx)
	b.mu.Unlock()
	if p != nil {
		err = b.settle(p, b.await(ctx, p))
	}
	return last, b.conclude(&watch, op, err)
}

// mustWait reports whether a party that comes now has to wait. It may be wrong a moment
// later: then a wait is reported by its end alone.
func (b *Barrier) mustWait() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.closed && b.broken == "" && b.phase.arrived < b.parties-1
}

// arriveLocked counts a party. It returns the phase to wait for, nil if the party need not
// wait.
func (b *Barrier) arriveLocked(ctx context.Context) (p *phase, last bool, err error) {
	switch {
	case ctx.Err() != nil:
		err = cancelled{context.Cause(ctx)}
		b.breakLocked(fmt.Sprintf("a party gave up: %v", err))
		return nil, false, err
	case b.closed:
		b.counts.Rejected++
		return nil, false, sema.ErrClosed
	case b.broken != "":
		b.counts.Rejected++
		return nil, false, b.brokenLocked()
	}
	p = b.phase
	p.arrived++
	if p.arrived < b.parties {
		b.counts.Waited++
		return p, false, nil
	}
	b.counts.Acquired += int64(b.parties)
	b.endLocked(nil)
	return nil, true, nil
}

// await waits for the end of a phase.
func (b *Barrier) await(ctx context.Context, p *phase) error {
	var expired <-chan time.Time
	if b.MaxWait > 0 {
		timer := time.NewTimer(b.MaxWait)
		defer timer.Stop()
		expired = timer.C
	}
	return await(ctx, p.done, expired)
}

// settle returns the result of a wait that ended with err. A party that gives up breaks the
// barrier, unless the phase has ended in the same instant.
func (b *Barrier) settle(p *phase, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.ended {
		return p.err
	}
	p.arrived-- // this party gets its own error
	b.counts.Failed(err, true)
	b.breakLocked(fmt.Sprintf("a party gave up: %v", err))
	return err
}

// breakLocked breaks the barrier for a reason, unless it is broken or closed.
func (b *Barrier) breakLocked(why string) {
	if b.broken == "" && !b.closed {
		b.broken = why
		b.rejectLocked(b.brokenLocked())
	}
}

func (b *Barrier) brokenLocked() error { return &detailed{ErrBroken, b.broken} }

// rejectLocked ends the phase with an error.
func (b *Barrier) rejectLocked(err error) {
	b.counts.Rejected += int64(b.phase.arrived)
	b.endLocked(err)
}

// endLocked ends the phase, and begins the next one.
func (b *Barrier) endLocked(err error) {
	b.phase.ended, b.phase.err = true, err
	close(b.phase.done)
	b.phase = newPhase()
}

// Break breaks the barrier: parties that wait, and those that come, get [ErrBroken].
func (b *Barrier) Break() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.breakLocked("Break was called")
}

// Reset repairs a broken barrier, and begins a new phase. Parties that wait get [ErrBroken].
// It is for the time when all parties have noticed that the barrier was broken: a party
// that comes late counts for the new phase.
func (b *Barrier) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.breakLocked("Reset was called")
	b.broken = ""
}

// Broken reports whether the barrier is broken.
func (b *Barrier) Broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broken != ""
}

// Close rejects parties that wait, and those that come, with [sema.ErrClosed]. It always
// returns nil.
func (b *Barrier) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.rejectLocked(sema.ErrClosed)
	b.mu.Unlock()
	b.monitor.Report(sema.Event{Kind: sema.EventClosed})
	return nil
}

// Parties returns the number of parties.
func (b *Barrier) Parties() int { return b.parties }

// Name returns the name that the option [sema.Name] set, or "".
func (b *Barrier) Name() string { return b.Settings.Name }

// Stats returns a snapshot: Capacity is the number of parties, Waiters and InUse those that
// have come, and Acquired counts the calls that have passed. WaitTime is 0.
func (b *Barrier) Stats() sema.Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.phase.arrived
	return sema.Stats{Capacity: int64(b.parties), InUse: int64(n), Free: int64(b.parties - n), Waiters: n, Closed: b.closed, Counts: b.counts}
}

// String returns the name and the state in one line.
func (b *Barrier) String() string {
	st := b.Stats()
	broken := ""
	if b.Broken() {
		broken = ", broken"
	}
	return fmt.Sprintf("%s: %d of %d parties waiting, %d phases%s%s", describe.Title("barrier", b.Name()),
		st.Waiters, st.Capacity, st.Acquired/st.Capacity, broken, suffix(st.Closed))
}

// GoString returns the same as String.
func (b *Barrier) GoString() string { return b.String() }

// LogValue implements [slog.LogValuer].
func (b *Barrier) LogValue() slog.Value { return slog.StringValue(b.String()) }
