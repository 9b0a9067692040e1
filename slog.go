package sema

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// LogTo returns an observer that logs the events an operator should know about.
//
// Exhaustion and recovery are logged at most once in ten seconds per name of a
// semaphore, and so are overlong holds. The first event is logged at once, and later
// ones are withheld. When the ten seconds end, the latest withheld event is logged,
// unless it repeats the exhaustion or recovery that was logged last.
//
// Leaks, inverted orders, suspected deadlocks, lost leases, failing open, rejected
// posts and configurations that differ from the stored one are logged each time.
//
// If l is nil, the observer logs to slog.Default().
func LogTo(l *slog.Logger) Observer {
	return &logObserver{logger: l, windows: map[logKey]*logWindow{}}
}

const logEvery = 10 * time.Second

type logObserver struct {
	logger  *slog.Logger
	mu      sync.Mutex
	windows map[logKey]*logWindow
}

type logKey struct {
	name     string
	overheld bool // otherwise exhausted and recovered, which share a window
}

// A logWindow is the ten seconds after an event was logged.
type logWindow struct {
	since   time.Time
	open    bool
	logged  EventKind
	latest  Event
	skipped int
}

// Observe implements [Observer]. It logs e now, later or not at all.
func (o *logObserver) Observe(e Event) {
	switch e.Kind {
	case EventExhausted, EventRecovered, EventOverheld:
		o.throttle(e)
	case EventLeaked, EventInverted, EventDeadlocked, EventLost, EventFailedOpen, EventOverReleased, EventMismatched:
		o.log(e, 0)
	}
}

// throttle logs e if no window is open. Otherwise it keeps e for the end of the window.
func (o *logObserver) throttle(e Event) {
	const maxNames = 10_000 // a program may generate names at run time
	key := logKey{e.Name, e.Kind == EventOverheld}
	o.mu.Lock()
	w := o.windows[key]
	if w == nil {
		if len(o.windows) > maxNames {
			clear(o.windows)
		}
		w = &logWindow{}
		o.windows[key] = w
	}
	w.latest = e
	// The clock is checked too: a timer of a synctest bubble ends with the bubble.
	if age := time.Since(w.since); w.open && age >= 0 && age < 2*logEvery {
		w.skipped++
		o.mu.Unlock()
		return
	}
	o.logLatestAndUnlock(w, key)
}

// logLatestAndUnlock logs the latest event of w and opens its window. It unlocks o.mu.
func (o *logObserver) logLatestAndUnlock(w *logWindow, key logKey) {
	e, skipped := w.latest, w.skipped
	w.open, w.since, w.logged, w.skipped = true, time.Now(), e.Kind, 0
	o.mu.Unlock()
	time.AfterFunc(logEvery, func() { o.endWindow(w, key) })
	o.log(e, skipped)
}

// endWindow closes a window. If the latest event was withheld and does not repeat the
// state that was logged last, it logs that event and opens the next window.
func (o *logObserver) endWindow(w *logWindow, key logKey) {
	o.mu.Lock()
	if w.skipped > 0 && (w.latest.Kind != w.logged || key.overheld) {
		w.skipped-- // the one that is logged
		o.logLatestAndUnlock(w, key)
		return
	}
	w.open, w.skipped = false, 0
	o.mu.Unlock()
}

func (o *logObserver) log(e Event, skipped int) {
	logger, level := o.logger, slog.LevelWarn
	if logger == nil {
		logger = slog.Default()
	}
	if e.Kind == EventRecovered {
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{slog.String("semaphore", e.Name)}
	add := func(cond bool, a slog.Attr) {
		if cond {
			attrs = append(attrs, a)
		}
	}
	add(e.Class != "", slog.String("class", e.Class))
	add(e.Weight > 0, slog.Int64("weight", e.Weight))
	add(e.Waiters > 0, slog.Int("waiters", e.Waiters))
	add(e.Hold > 0, slog.Duration("hold", e.Hold))
	add(e.Site != "", slog.String("site", e.Site))
	add(e.Err != nil, slog.Any("error", e.Err))
	add(e.Report != "", slog.String("report", e.Report))
	add(skipped > 0, slog.Int("skipped", skipped))
	logger.LogAttrs(context.Background(), level, "sema: "+e.Kind.String(), attrs...)
}
