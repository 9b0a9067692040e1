package classic

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/describe"
)

// A Turnstile lets goroutines pass one at a time, in order of arrival, and none while it is
// held or shut. Create it with [NewTurnstile]. It is safe for concurrent use.
//
// It is a [sema.Gate] of one permit. A goroutine that holds the permit stops all others: so a
// writer stops new readers until those before it have finished. Shut stops them until Open,
// whichever goroutine calls it: so an operator pauses workers between two jobs.
type Turnstile struct{ gate *sema.Semaphore }

var _ sema.Gate = (*Turnstile)(nil)

// NewTurnstile returns a turnstile that is open. Its options are those of [sema.New] that
// every gate has: [sema.Name], [sema.MaxWait], [sema.MaxWaiters], and those for observers and
// diagnostics.
func NewTurnstile(opts ...sema.SharedOption) *Turnstile {
	all := make([]sema.Option, len(opts))
	for i, opt := range opts {
		all[i] = opt
	}
	return &Turnstile{gate: sema.New(1, all...)}
}

// Pass waits for its turn, and goes through. It fails as [sema.Semaphore.Acquire] does.
func (t *Turnstile) Pass(ctx context.Context) error {
	p, err := t.gate.Acquire(ctx, 1)
	if err == nil {
		p.Release()
	}
	return ifShut(err)
}

// Acquire waits for its turn, and holds the turnstile until the permit is released: no
// other goroutine passes. It implements [sema.Gate].
func (t *Turnstile) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	p, err := t.gate.Acquire(ctx, n)
	return p, ifShut(err)
}

// TryAcquire holds the turnstile if it is open and no goroutine waits. It implements
// [sema.Gate].
func (t *Turnstile) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	p, err := t.gate.TryAcquire(ctx, n)
	return p, ifShut(err)
}

// ifShut adds the advice for a turnstile that is shut, whose semaphore is paused, to an error.
func ifShut(err error) error {
	fault, ok := err.(*sema.Error)
	if !ok || fault.Capacity > 0 || fault.Weight <= 0 || fault.Err != sema.ErrFull && fault.Err != sema.ErrTimeout {
		return err
	}
	shut := *fault // observers may have the original
	shut.Advice = "wait until the turnstile is opened: it is shut"
	return &shut
}

// Shut stops all goroutines that have not passed yet, until Open. A goroutine that holds the
// turnstile keeps it. To shut it again does nothing.
func (t *Turnstile) Shut() { t.gate.Resize(0) }

// Open ends a Shut. To open it again does nothing.
func (t *Turnstile) Open() { t.gate.Resize(1) }

// Close rejects goroutines that wait, and those that come, with [sema.ErrClosed]. It always
// returns nil.
func (t *Turnstile) Close() error { return t.gate.Close() }

// Name returns the name that the option [sema.Name] set, or "".
func (t *Turnstile) Name() string { return t.gate.Name() }

// Stats returns a snapshot. Capacity is 0 while the turnstile is shut.
func (t *Turnstile) Stats() sema.Stats { return t.gate.Stats() }

// String returns the name and the state in one line.
func (t *Turnstile) String() string {
	st := t.Stats()
	state := "open"
	switch {
	case st.Closed:
		state = "closed"
	case st.Capacity == 0:
		state = "shut"
	case st.InUse > 0:
		state = "held"
	}
	return fmt.Sprintf("%s: %s, %d waiting", describe.Title("turnstile", t.Name()), state, st.Waiters)
}

// GoString returns the same as String.
func (t *Turnstile) GoString() string { return t.String() }

// LogValue implements [slog.LogValuer].
func (t *Turnstile) LogValue() slog.Value { return slog.StringValue(t.String()) }
