package admit

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/monotonic"
)

// A Load is what [Config.Degrade] decides by.
type Load struct {
	Class    string        // of the request
	Reason   Reason        // why the request would be rejected or, if it may wait, what it would wait for
	Wait     time.Duration // expected wait; 0: unknown
	InFlight int64         // permits in use
	Limit    int64         // capacity of the queue
	Waiters  int           // requests that wait
}

func (c *Controller) load(k *class, why Reason, wait time.Duration) Load {
	st := c.queue.Stats()
	return Load{Class: k.name, Reason: why, Wait: wait, InFlight: st.InUse, Limit: st.Capacity, Waiters: st.Waiters}
}

// Stats is the state of a controller. The embedded Stats are those of its queue.
type Stats struct {
	sema.Stats
	Shed     map[Reason]int64 // rejections by reason; reasons that did not occur are absent
	Degraded int64            // requests that got a cheap response
	Clamped  int64            // weights and costs that were lowered to what can be granted at once
	Shedding bool             // switched on
	Breaker  State            // Closed if there is none
	Limit    int64            // the adaptive limit; 0: none
}

// Stats returns the state of the controller.
func (c *Controller) Stats() Stats {
	s := c.switches.Load()
	st := Stats{
		Stats: c.queue.Stats(), Shed: shedOf(&c.shed), Degraded: c.degraded.Load(), Clamped: c.clamped.Load(),
		Shedding: s&sheddingSwitch != 0, Limit: c.adapter.Limit(),
	}
	st.Draining = st.Draining || s&drainingSwitch != 0
	if c.breaker != nil {
		st.Breaker = c.breaker.State()
	}
	return st
}

// ClassStats is the state of one class of a controller.
type ClassStats struct {
	sema.Stats
	Shed     map[Reason]int64
	Shedding bool
}

// Classes yields the classes that were used lately with their state, in no particular order.
func (c *Controller) Classes() iter.Seq2[string, ClassStats] {
	return func(yield func(string, ClassStats) bool) {
		for k := range c.classes.all {
			if !yield(k.name, ClassStats{Stats: k.queue.Stats(), Shed: shedOf(&k.shed), Shedding: k.shedding.Load()}) {
				return
			}
		}
	}
}

// Name returns the name of the controller.
func (c *Controller) Name() string { return c.config.Name }

// String returns the name and the state in one line.
func (c *Controller) String() string {
	st := c.Stats()
	of := ""
	if st.Capacity < sema.MaxCapacity {
		of = fmt.Sprintf(" of %d", st.Capacity)
	}
	text := fmt.Sprintf("controller %q: %d%s in flight, %d waiting", c.config.Name, st.InUse, of, st.Waiters)
	for _, state := range []struct {
		on   bool
		text string
	}{{st.Shedding, "shedding"}, {st.Draining, "draining"}, {st.Breaker != Closed, "breaker " + st.Breaker.String()}} {
		if state.on {
			text += ", " + state.text
		}
	}
	return text
}

// GoString returns the same as String.
func (c *Controller) GoString() string { return c.String() }

// LogValue implements [slog.LogValuer].
func (c *Controller) LogValue() slog.Value { return slog.StringValue(c.String()) }

func shedOf(counters *[reasons]counter) map[Reason]int64 {
	shed := map[Reason]int64{}
	for r := range counters {
		if n := counters[r].Load(); n > 0 {
			shed[Reason(r)] = n
		}
	}
	return shed
}

// logInterval is how often rejections for one reason are logged.
const logInterval = 10 * time.Second

// A sheddingLog logs rejections at a limited rate.
type sheddingLog struct {
	mu     sync.Mutex // guards what follows
	last   [reasons]time.Duration
	logged [reasons]int64 // of Controller.shed
}

// shed logs a rejection, unless one with the same reason was logged lately.
func (l *sheddingLog) shed(c *Controller, r *Rejection) {
	if !l.mu.TryLock() {
		return // another rejection is being logged
	}
	now, n := monotonic.Since(), c.shed[r.Reason].Load()
	if l.logged[r.Reason] > 0 && now < l.last[r.Reason]+logInterval {
		l.mu.Unlock()
		return
	}
	since := n - l.logged[r.Reason]
	l.last[r.Reason], l.logged[r.Reason] = now, n
	l.mu.Unlock()
	c.config.Logger.Warn("requests rejected", "controller", c.config.Name, "reason", r.Reason.String(), "class", r.Class, "rejected", since, "hint", sema.Hint(r))
}

// A breakerLog logs changes of a breaker, for each state that it changes to at a limited rate.
type breakerLog struct {
	mu      sync.Mutex // guards what follows
	last    [HalfOpen + 1]time.Duration
	changes [HalfOpen + 1]int64 // since the last line
	logged  [HalfOpen + 1]bool
}

// changed logs a change, unless one to the same state was logged lately.
func (l *breakerLog) changed(c *Controller, to change) {
	l.mu.Lock()
	now, s := monotonic.Since(), to.to
	l.changes[s]++
	if l.logged[s] && now < l.last[s]+logInterval {
		l.mu.Unlock()
		return
	}
	n := l.changes[s]
	l.last[s], l.changes[s], l.logged[s] = now, 0, true
	l.mu.Unlock()
	level := slog.LevelInfo
	if s == Open {
		level = slog.LevelWarn
	}
	c.config.Logger.Log(context.Background(), level, "breaker changed", "controller", c.config.Name, "from", to.from.String(), "to", s.String(), "reason", to.reason, "changes", n)
}

// A counter counts rejections.
type counter = atomic.Int64
