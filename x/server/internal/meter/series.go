package meter

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Result is the result of an acquire.
type Result int

// The results of acquires.
const (
	Acquired Result = iota
	TimedOut
	Canceled
	Rejected
	Error
	results // number of results
)

func (o Result) String() string {
	return [...]string{"acquired", "timeout", "canceled", "rejected", "error"}[o]
}

// A Lost is the reason why a lease was lost.
type Lost int

// The reasons.
const (
	LostExpired Lost = iota // it was not renewed in time
	LostRevoked
	LostDeleted // with its semaphore
	losts       // number of reasons
)

func (l Lost) String() string { return [...]string{"expired", "revoked", "deleted"}[l] }

// A renewal is the result of a batch without operations that renews leases.
type renewal int

const (
	renewed renewal = iota
	renewalLost
	renewalFailed
	renewals // number of results
)

func (r renewal) String() string { return [...]string{"ok", "lost", "error"}[r] }

// A Series contains the figures of one semaphore.
type Series struct {
	Name     string
	owner    string // of an undeclared semaphore
	declared bool
	initial  State // while the store does not have the semaphore
	began    time.Time
	active   atomic.Int64 // when it was last used, in nanoseconds since 1970

	acquires [results]atomic.Uint64
	lost     [losts]atomic.Uint64
	renewals [renewals]atomic.Uint64
	queued   atomic.Uint64 // acquires that were queued
	queuedIn atomic.Int64  // nanoseconds that they were queued, without those queued now

	waits [results]atomic.Pointer[prometheus.Histogram] // nil: none yet, or acquires with the result have no wait
	holds atomic.Pointer[prometheus.Histogram]

	mu      sync.Mutex
	reasons map[string]uint64 // rejections
	window  window
	recent  *recentWaits // nil: nothing has waited yet
	state   State
	sampled Totals // at the last regular sample
	pointed Totals // at the last sample of any kind
}

// A State is a semaphore as the store listed it.
type State struct {
	Known                               bool // the store has it; set by Observe
	Capacity, Effective, InUse, Waiting int64
	Draining, Rate                      bool
}

func newSeries(name, owner string, declared bool, now time.Time) *Series {
	s := &Series{Name: name, owner: owner, declared: declared, began: now, reasons: map[string]uint64{}}
	s.active.Store(now.UnixNano())
	if declared { // its series exist before its first use
		s.histogram(&s.waits[Acquired], waitOptions)
		s.histogram(&s.holds, holdOptions)
	}
	return s
}

// Buckets of the classic histograms: few, because each is a series per semaphore. The native
// histograms have buckets of 10 %.
var (
	waitBuckets = []float64{0.001, 0.01, 0.1, 0.5, 1, 5, 30, 120}
	holdBuckets = []float64{0.01, 0.1, 1, 5, 30, 120, 600, 3600}

	waitOptions = prometheus.HistogramOpts{Name: "wait", Buckets: waitBuckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 80}
	holdOptions = prometheus.HistogramOpts{Name: "hold", Buckets: holdBuckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 80}
)

// histogram returns a histogram, and creates it on first use: most semaphores never time out.
func (s *Series) histogram(p *atomic.Pointer[prometheus.Histogram], o prometheus.HistogramOpts) prometheus.Histogram {
	if h := p.Load(); h != nil {
		return *h
	}
	h := prometheus.NewHistogram(o)
	if !p.CompareAndSwap(nil, &h) {
		return *p.Load()
	}
	return h
}

// started records that an acquire began.
func (s *Series) started(now time.Time) {
	s.mu.Lock()
	s.window.slot(now).arrivals++
	s.mu.Unlock()
}

// granted records a grant. timed is false if the server has not seen when the acquire began.
func (s *Series) granted(weight int64, waited time.Duration, timed bool, now time.Time) {
	s.acquires[Acquired].Add(1)
	s.mu.Lock()
	w := s.window.slot(now)
	w.grants++
	w.weight += float64(weight)
	if timed {
		w.wait.add(waited)
		s.waitedLocked(waited, now)
	}
	s.mu.Unlock()
	if timed {
		s.histogram(&s.waits[Acquired], waitOptions).Observe(max(0, waited.Seconds()))
	}
}

// gaveUp records an acquire that ended in the queue.
func (s *Series) gaveUp(o Result, waited time.Duration, now time.Time) {
	s.acquires[o].Add(1)
	s.mu.Lock()
	s.window.slot(now).wait.add(waited)
	s.waitedLocked(waited, now)
	s.mu.Unlock()
	s.histogram(&s.waits[o], waitOptions).Observe(max(0, waited.Seconds()))
}

// reject records an acquire that was not granted, and not because its wait had ended.
func (s *Series) reject(o Result, reason string) {
	s.acquires[o].Add(1)
	if reason == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reasons[reason]++
}

// rejectStarted records the same of an acquire that has counted as an arrival.
func (s *Series) rejectStarted(o Result, reason string, now time.Time) {
	s.reject(o, reason)
	s.mu.Lock()
	s.window.slot(now).rejected++
	s.mu.Unlock()
}

// held records the end of a lease. The begin of a lease that another server granted is a time of the
// store's clock, and may be in the future.
func (s *Series) held(d time.Duration, weight int64, now time.Time) {
	d = max(0, d)
	s.mu.Lock()
	w := s.window.slot(now)
	w.hold.add(d)
	w.heldWeight += d.Seconds() * float64(weight)
	w.endedWeight += float64(weight)
	s.mu.Unlock()
	s.histogram(&s.holds, holdOptions).Observe(d.Seconds())
}

// State returns the state as last observed.
func (s *Series) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Totals are counters of a semaphore at one moment.
type Totals struct{ Grants, Failures uint64 }

// Sampled returns what has happened since the last regular sample.
func (s *Series) Sampled() Totals { return s.since(&s.sampled) }

// Pointed returns what has happened since the last sample of any kind.
func (s *Series) Pointed() Totals { return s.since(&s.pointed) }

func (s *Series) since(last *Totals) Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, now := *last, Totals{s.Total(Acquired), s.Failures()}
	*last, s.pointed = now, now
	return Totals{now.Grants - was.Grants, now.Failures - was.Failures}
}

// Total returns how many acquires have had a result.
func (s *Series) Total(o Result) uint64 { return s.acquires[o].Load() }

// Failures returns how many acquires were not granted.
func (s *Series) Failures() (n uint64) {
	for o := TimedOut; o < results; o++ {
		n += s.acquires[o].Load()
	}
	return n
}
