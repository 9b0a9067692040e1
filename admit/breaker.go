package admit

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/internal/monotonic"
)

// A State is the state of a [Breaker].
type State uint8

const (
	Closed   State = iota // calls pass
	Open                  // calls are rejected
	HalfOpen              // a few calls pass, to find out whether the dependency has recovered
)

// String returns the name of the state.
func (s State) String() string { return word(int(s), "closed", "open", "half-open") }

// A BreakerConfig describes a [Breaker]. Zero values mean the defaults.
type BreakerConfig struct {
	// Window is how far back results count. Default 10s.
	Window time.Duration
	// MinCalls is how many calls the window must contain before the breaker opens. Default 20.
	MinCalls int64
	// FailureRatio opens the breaker: failed calls among all. Default 0.5.
	FailureRatio float64
	// SlowCall is the duration from which a call is slow. Default: none is.
	SlowCall time.Duration
	// SlowRatio opens the breaker: slow calls among all. Default 0.8.
	SlowRatio float64
	// OpenFor is how long the breaker stays open before it lets probes pass. It doubles
	// each time a probe fails, up to MaxOpenFor. Default 5s.
	OpenFor time.Duration
	// MaxOpenFor bounds the doubling. Default 12 × OpenFor.
	MaxOpenFor time.Duration
	// Probes is how many calls pass at once while the breaker is half-open, and how many
	// have to succeed to close it. Default 3.
	Probes int
	// ProbeTimeout is after which another probe may take the place of one without a result.
	// Default 10s. So a probe whose result is never reported cannot wedge the breaker.
	ProbeTimeout time.Duration
	// OnChange is called after a change of state, with no lock held.
	OnChange func(from, to State)
}

// A Breaker rejects calls to a dependency that fails, so that they cost neither time nor
// permits, and the dependency can recover. It opens if too many calls in a window of time
// failed or were slow. After a while it lets a few probes pass, and closes if they succeed.
//
// Every result counts in the window, also one that arrives after the state has changed. A
// probe without a result expires. Create it with [NewBreaker]. It is safe for concurrent
// use.
//
//	closed ──failures──▶ open ──OpenFor──▶ half-open ──probes succeed──▶ closed
//	                       ▲                   │
//	                       └───a probe fails───┘
type Breaker struct {
	config BreakerConfig
	window window
	state  atomic.Uint32 // State; changes under mu

	mu        sync.Mutex // guards what follows
	openUntil time.Duration
	openFor   time.Duration
	episode   uint64          // counts half-open phases
	expiry    []time.Duration // of the probes that are under way
	succeeded int             // probes of this episode
	reason    string          // of the last change
	since     time.Duration   // when it was
	changes   int64

	watchers atomic.Pointer[[]func(change)] // notified after changes; added under mu
}

// A change is a change of the state of a breaker.
type change struct {
	from, to State
	reason   string
}

// NewBreaker returns a closed breaker. It panics if the configuration is invalid.
func NewBreaker(config BreakerConfig) *Breaker {
	c := &config
	orDefault(&c.Window, 10*time.Second)
	orDefault(&c.MinCalls, 20)
	orDefault(&c.FailureRatio, 0.5)
	orDefault(&c.SlowRatio, 0.8)
	orDefault(&c.OpenFor, 5*time.Second)
	orDefault(&c.MaxOpenFor, times(12, c.OpenFor))
	orDefault(&c.Probes, 3)
	orDefault(&c.ProbeTimeout, 10*time.Second)
	if c.Window < windowBuckets || c.MinCalls < 0 || !(c.FailureRatio >= 0) || c.SlowCall < 0 || !(c.SlowRatio >= 0) || c.OpenFor < 0 || c.MaxOpenFor < c.OpenFor || c.Probes < 0 || c.ProbeTimeout < 0 {
		panic("admit: NewBreaker: negative values, a ratio that is no number, or MaxOpenFor below OpenFor")
	}
	b := &Breaker{config: config}
	b.window.width = c.Window / windowBuckets
	return b
}

// times returns n·d, or the longest duration if the product overflows.
func times(n int64, d time.Duration) time.Duration {
	if int64(d) > math.MaxInt64/n {
		return math.MaxInt64
	}
	return time.Duration(n) * d
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// An Attempt is a call that a breaker let pass. It is a small value; the zero Attempt is
// inert.
type Attempt struct {
	breaker *Breaker
	episode uint64 // of a probe; 0: the breaker was closed
	expiry  time.Duration
}

// Allow lets a call pass, or returns a [Rejection]. Report the result with [Attempt.Done].
func (b *Breaker) Allow() (Attempt, error) {
	a, wait := b.allow()
	if wait > 0 {
		return a, &Rejection{Reason: ReasonBreaker, RetryAfter: wait, Err: facts[ReasonBreaker]}
	}
	return a, nil
}

// allow lets a call pass, or returns when to ask again.
func (b *Breaker) allow() (Attempt, time.Duration) {
	if b.closed() {
		return Attempt{breaker: b}, 0
	}
	b.mu.Lock()
	was := State(b.state.Load())
	a, wait := b.allowLocked(monotonic.Since())
	changed := b.sinceLocked(was)
	b.mu.Unlock()
	b.notify(changed)
	return a, wait
}

func (b *Breaker) allowLocked(now time.Duration) (Attempt, time.Duration) {
	switch State(b.state.Load()) {
	case Closed:
		return Attempt{breaker: b}, 0
	case Open:
		if now < b.openUntil {
			return Attempt{}, b.openUntil - now
		}
		b.setLocked(HalfOpen, now, "it was open for "+b.openFor.String())
		b.episode++
		b.expiry, b.succeeded = b.expiry[:0], 0
	}
	next := time.Duration(math.MaxInt64)
	live := b.expiry[:0]
	for _, at := range b.expiry {
		if at > now {
			live = append(live, at)
			next = min(next, at-now)
		}
	}
	b.expiry = live
	if len(live)+b.succeeded >= b.config.Probes {
		return Attempt{}, next
	}
	at := later(now, b.config.ProbeTimeout)
	b.expiry = append(b.expiry, at)
	return Attempt{breaker: b, episode: b.episode, expiry: at}, 0
}

// Done reports the result of a call and how long it took. Report each result once.
func (a Attempt) Done(o Result, took time.Duration) {
	if a.breaker != nil && (o != Ignored || a.episode != 0) {
		a.report(o, took, monotonic.Since())
	}
}

// report counts a result.
func (a Attempt) report(o Result, took, now time.Duration) {
	b := a.breaker
	if b == nil {
		return
	}
	failed := o == Failed || o == Dropped
	slow := b.config.SlowCall > 0 && took >= b.config.SlowCall
	if o != Ignored {
		b.window.record(now, failed, slow)
	}
	if a.episode == 0 && !failed && !slow {
		return // cannot change the state
	}
	b.mu.Lock()
	was := State(b.state.Load())
	b.judgeLocked(a, o, o != Ignored && (failed || slow), now)
	changed := b.sinceLocked(was)
	b.mu.Unlock()
	b.notify(changed)
}

// judgeLocked changes the state if a result requires that.
func (b *Breaker) judgeLocked(a Attempt, o Result, bad bool, now time.Duration) {
	switch State(b.state.Load()) {
	case Closed:
		if bad && b.overLocked(now) {
			n := b.window.sum(now)
			b.openFor = b.config.OpenFor
			b.openLocked(now, fmt.Sprintf("of %d calls in %v, %d failed and %d were slow", n.calls, b.config.Window, n.failed, n.slow))
		}
	case HalfOpen:
		if a.episode != b.episode {
			return // a late result of before: it counts in the window only
		}
		b.endProbeLocked(a.expiry)
		switch {
		case o == Ignored:
		case bad:
			b.openFor = min(times(2, b.openFor), b.config.MaxOpenFor)
			why := "a probe was slow"
			if o != OK {
				why = "a probe failed"
			}
			b.openLocked(now, why)
		default:
			if b.succeeded++; b.succeeded >= b.config.Probes {
				b.window.reset()
				b.setLocked(Closed, now, fmt.Sprintf("%d probes succeeded", b.succeeded))
			}
		}
	}
}

// overLocked reports whether too many calls of the window failed or were slow.
func (b *Breaker) overLocked(now time.Duration) bool {
	n := b.window.sum(now)
	return n.calls >= b.config.MinCalls && (float64(n.failed) >= b.config.FailureRatio*float64(n.calls) && n.failed > 0 ||
		float64(n.slow) >= b.config.SlowRatio*float64(n.calls) && n.slow > 0)
}

func (b *Breaker) openLocked(now time.Duration, reason string) {
	b.openUntil = later(now, b.openFor)
	b.setLocked(Open, now, reason)
}

// setLocked sets the state, and why.
func (b *Breaker) setLocked(to State, now time.Duration, reason string) {
	if State(b.state.Load()) != to {
		b.changes++
		b.since = now
	}
	b.reason = reason
	b.state.Store(uint32(to))
}

// sinceLocked returns the change since the state was was.
func (b *Breaker) sinceLocked(was State) change {
	return change{was, State(b.state.Load()), b.reason}
}

// endProbeLocked forgets a probe that has a result. One that has expired is forgotten
// already.
func (b *Breaker) endProbeLocked(expiry time.Duration) {
	for i, at := range b.expiry {
		if at == expiry {
			b.expiry = append(b.expiry[:i], b.expiry[i+1:]...)
			return
		}
	}
}

// closed reports whether calls pass without any further check.
func (b *Breaker) closed() bool { return State(b.state.Load()) == Closed }

// watch makes the breaker call fn after each change of its state, with no lock held.
func (b *Breaker) watch(fn func(change)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := []func(change){fn}
	if before := b.watchers.Load(); before != nil {
		all = append(slices.Clone(*before), fn)
	}
	b.watchers.Store(&all)
}

// notify reports a change, if it is one.
func (b *Breaker) notify(c change) {
	if c.from == c.to {
		return
	}
	if all := b.watchers.Load(); all != nil {
		for _, fn := range *all {
			fn(c)
		}
	}
	if b.config.OnChange != nil {
		b.config.OnChange(c.from, c.to)
	}
}

// BreakerStats is the state of a [Breaker], and why.
type BreakerStats struct {
	State   State
	Reason  string    // of the last change; "" if there was none
	Since   time.Time // of the last change; zero if there was none
	Changes int64
	Calls   int64 // results in the window, and how many of them were failed or slow
	Failed  int64
	Slow    int64
}

// Stats returns a snapshot.
func (b *Breaker) Stats() BreakerStats {
	state := b.State()
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.window.sum(monotonic.Since())
	st := BreakerStats{State: state, Reason: b.reason, Changes: b.changes, Calls: n.calls, Failed: n.failed, Slow: n.slow}
	if b.changes > 0 {
		st.Since = monotonic.Time(b.since)
	}
	return st
}

// State returns the state. A breaker that has been open for long enough is half-open.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := State(b.state.Load()); s != Open || monotonic.Since() < b.openUntil {
		return s
	}
	return HalfOpen
}

// Trip opens the breaker, for an operator of a dependency that is away.
func (b *Breaker) Trip() {
	b.mu.Lock()
	was := State(b.state.Load())
	b.openFor = b.config.OpenFor
	b.openLocked(monotonic.Since(), "an operator has tripped it")
	changed := b.sinceLocked(was)
	b.mu.Unlock()
	b.notify(changed)
}

// Reset closes the breaker and forgets the results.
func (b *Breaker) Reset() {
	b.mu.Lock()
	was := State(b.state.Load())
	b.window.reset()
	b.setLocked(Closed, monotonic.Since(), "an operator has reset it")
	changed := b.sinceLocked(was)
	b.mu.Unlock()
	b.notify(changed)
}
