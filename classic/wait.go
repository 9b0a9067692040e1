package classic

import (
	"context"
	"time"

	"github.com/sema-go/sema"
)

// A parking is where one call waits. Those outside of testing/synctest bubbles are used
// again; in a bubble they are not, since a channel or timer must not cross its border.
type parking struct {
	wake   chan struct{} // buffered; receives once, after the call was removed from its queue
	timer  *time.Timer   // of MaxWait; nil until it is needed
	reused bool
}

// newParking returns the parking of a new waiter. reused is the result of mayReuse.
func newParking(reused bool) parking { return parking{wake: make(chan struct{}, 1), reused: reused} }

// mayReuse reports whether waiters may be taken from a pool: the caller does not run in a
// testing/synctest bubble. There, and nowhere else, the time has no monotonic clock reading.
func mayReuse() bool {
	now := time.Now()
	return now != now.Round(0)
}

// await waits until wake receives. It returns a [cancelled] if ctx ends before, or
// ErrTimeout after limit; a limit of 0 is none.
func (p *parking) await(ctx context.Context, limit time.Duration) error {
	var expired <-chan time.Time
	if limit > 0 {
		if p.timer == nil {
			p.timer = time.NewTimer(limit)
		} else {
			p.timer.Reset(limit)
		}
		defer p.timer.Stop()
		expired = p.timer.C
	}
	return await(ctx, p.wake, expired)
}

// await waits until ready receives or is closed, ctx ends or expired receives.
func await(ctx context.Context, ready <-chan struct{}, expired <-chan time.Time) error {
	select {
	case <-ready:
		return nil
	case <-expired:
		return sema.ErrTimeout
	case <-ctx.Done():
		return cancelled{context.Cause(ctx)}
	}
}

// A cancelled is the result of a wait whose context has ended. Its cause may be any error, a
// sentinel of package sema too.
type cancelled struct{ cause error }

func (c cancelled) Error() string { return c.cause.Error() }

// A facility is what the structures of this package have in common: settings, reports and
// the facts of errors.
type facility struct {
	sema.Settings
	monitor *sema.Monitor // nil unless observed or diagnosed
	spender sema.Spender  // for reports of what holds no permit
	stats   func() sema.Stats
}

// init prepares the facility, without its monitor. Its state is what stats returns.
func (f *facility) init(opts []sema.SharedOption, stats func() sema.Stats) {
	f.Settings = sema.SettingsOf(opts...)
	f.stats = stats
	f.spender.Init()
}

// conclude reports the result of a call that holds nothing, and returns its error with the
// facts.
func (f *facility) conclude(watch *sema.Wait, op string, err error) error {
	if err == nil {
		if f.monitor != nil {
			watch.Spent(&f.spender, 1)
		}
		return nil
	}
	return watch.Failed(f.fault(op, 0, err))
}

// fault returns the error of a caller: the cause of its context as it is, and sentinels with
// the facts.
func (f *facility) fault(op string, n int64, err error) error {
	if c, ok := err.(cancelled); ok {
		return c.cause
	}
	st := f.stats()
	fault := &sema.Error{Op: op, Name: f.Name, Weight: n, Capacity: st.Capacity, InUse: st.InUse, Waiters: st.Waiters, Err: err}
	if d, ok := err.(*detailed); ok {
		fault.Err, fault.Detail = d.sentinel, d.detail
	}
	if err == sema.ErrTimeout {
		fault.Detail = f.MaxWait.String()
	}
	return fault
}

// mayQueue reports whether one more caller may wait, given how many do.
func (f *facility) mayQueue(waiters int) bool { return f.MaxWaiters == 0 || waiters < f.MaxWaiters }

// A detailed error is a sentinel with facts.
type detailed struct {
	sentinel error
	detail   string
}

func (d *detailed) Error() string { return d.sentinel.Error() + ": " + d.detail }

var (
	errNilContext = &detailed{sema.ErrInvalid, "nil context"}
	errNegative   = &detailed{sema.ErrInvalid, "negative weight"}
)

// monitorSignals returns the monitor of a structure whose callers wait for each other; nil
// unless the options ask for one.
func monitorSignals(opts []sema.SharedOption, stats func() sema.Stats) *sema.Monitor {
	gate := watched{stats: stats}
	return sema.NewMonitor(gate, opts...).ForSignals(gate, "")
}

// A watched is a structure as its monitor sees it: it has a state, and grants nothing.
type watched struct {
	sema.Gate
	stats func() sema.Stats
}

// Stats returns the state.
func (w watched) Stats() sema.Stats { return w.stats() }

// suffix returns the end of a text that describes something which may be closed.
func suffix(closed bool) string {
	if closed {
		return ", closed"
	}
	return ""
}
