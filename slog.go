package sema

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// LogTo returns an observer that logs what an operator should know, and no
// more: exhaustion, its end and overlong holds, each at most once in ten
// seconds per semaphore; and leaks, inverted orders, suspected deadlocks, lost
// leases and failing open, each time. A nil logger is slog.Default().
func LogTo(l *slog.Logger) Observer {
	return &logObserver{logger: l, last: map[logKey]*logState{}}
}

const logEvery = 10 * time.Second

type logObserver struct {
	logger *slog.Logger
	mu     sync.Mutex
	last   map[logKey]*logState
}

type logKey struct {
	name string
	kind Kind
}

type logState struct {
	at      time.Time
	skipped int
}

func (o *logObserver) Observe(e Event) {
	level := slog.LevelWarn
	switch e.Kind {
	case Recovered:
		level = slog.LevelInfo
	case Exhausted, Overheld, Leaked, Inverted, Deadlocked, Lost, FailedOpen, OverReleased:
	default:
		return
	}
	skipped, quiet := o.throttle(e)
	if quiet {
		return
	}
	attrs := []slog.Attr{slog.String("semaphore", e.Name)}
	add := func(cond bool, a slog.Attr) {
		if cond {
			attrs = append(attrs, a)
		}
	}
	add(e.Weight > 0, slog.Int64("weight", e.Weight))
	add(e.Waiters > 0, slog.Int("waiters", e.Waiters))
	add(e.Hold > 0, slog.Duration("hold", e.Hold))
	add(e.Site != "", slog.String("site", e.Site))
	add(e.Err != nil, slog.Any("error", e.Err))
	add(e.Report != "", slog.String("report", e.Report))
	add(skipped > 0, slog.Int("skipped", skipped))
	logger := o.logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(context.Background(), level, "sema: "+e.Kind.String(), attrs...)
}

// throttle decides about the kinds that can come by the thousand.
func (o *logObserver) throttle(e Event) (skipped int, quiet bool) {
	if e.Kind != Exhausted && e.Kind != Recovered && e.Kind != Overheld {
		return 0, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	state := o.last[logKey{e.Name, e.Kind}]
	if state == nil {
		state = &logState{}
		o.last[logKey{e.Name, e.Kind}] = state
	} else if now.Sub(state.at) < logEvery {
		state.skipped++
		return 0, true
	}
	skipped, state.skipped, state.at = state.skipped, 0, now
	return skipped, false
}
