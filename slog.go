package sema

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// LogTo returns an observer that logs what an operator should know, and no
// more. Exhaustion and its end, and overlong holds, are logged at most every
// ten seconds per name of a semaphore: at once if there was nothing for a
// while, and at the end of the ten seconds what it has come to meanwhile.
// Leaks, inverted orders, suspected deadlocks, lost leases, failing open, rejected
// posts and configurations that differ from the stored one are logged each time. A nil logger is slog.Default().
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
	overheld bool // or else exhausted and recovered, which are one story
}

// A logWindow is the ten seconds after something was logged.
type logWindow struct {
	since   time.Time
	open    bool
	logged  EventKind
	latest  Event
	skipped int
}

// Observe logs e, now, later or not at all.
func (o *logObserver) Observe(e Event) {
	switch e.Kind {
	case EventExhausted, EventRecovered, EventOverheld:
		o.fold(e)
	case EventLeaked, EventInverted, EventDeadlocked, EventLost, EventFailedOpen, EventOverReleased, EventMismatched:
		o.log(e, 0)
	}
}

// fold logs e if no window is open, and otherwise keeps it for the end of it.
func (o *logObserver) fold(e Event) {
	const mostNames = 10_000 // names may be made up as a program runs
	key := logKey{e.Name, e.Kind == EventOverheld}
	o.mu.Lock()
	w := o.windows[key]
	if w == nil {
		if len(o.windows) > mostNames {
			clear(o.windows)
		}
		w = &logWindow{}
		o.windows[key] = w
	}
	w.latest = e
	// The clock is asked too: a timer set in a synctest bubble ends with it.
	if age := time.Since(w.since); w.open && age >= 0 && age < 2*logEvery {
		w.skipped++
		o.mu.Unlock()
		return
	}
	o.show(w, key)
}

// show logs the latest of w and opens its window. It unlocks o.mu.
func (o *logObserver) show(w *logWindow, key logKey) {
	e, skipped := w.latest, w.skipped
	w.open, w.since, w.logged, w.skipped = true, time.Now(), e.Kind, 0
	o.mu.Unlock()
	time.AfterFunc(logEvery, func() { o.close(w, key) })
	o.log(e, skipped)
}

// close ends a window, or opens the next if there is news.
func (o *logObserver) close(w *logWindow, key logKey) {
	o.mu.Lock()
	if w.skipped > 0 && (w.latest.Kind != w.logged || key.overheld) {
		w.skipped-- // the one that is shown
		o.show(w, key)
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
