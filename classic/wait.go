package classic

import (
	"context"
	"time"

	"github.com/sema-go/sema"
)

// await waits until ready receives or is closed. It returns a [cancelled] if ctx ends before,
// or ErrTimeout after limit; a limit of 0 is none.
func await(ctx context.Context, ready <-chan struct{}, limit time.Duration) error {
	var expired <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
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

// init prepares the facility. Its state is what stats returns.
func (f *facility) init(opts []sema.SharedOption, stats func() sema.Stats) {
	f.Settings = sema.SettingsOf(opts...)
	f.stats = stats
	f.monitor = sema.NewMonitor(watched{stats: stats}, opts...)
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
