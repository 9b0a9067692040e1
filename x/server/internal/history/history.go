// Package history keeps the recent past of semaphores: a sample every 5 seconds for an hour,
// one a minute for 24 hours, and one a second for those that are being viewed.
//
// Samples are delta-encoded: an unchanged sample takes no space, and a changed one a few bytes.
// They are kept in segments of 60 samples, which begin with absolute values, so that an old
// segment can be dropped as a whole. Durations are rounded to 9 %.
//
// With a directory, each sample is also appended to a file, in the same encoding. So the history
// survives a restart and a kill of the process. Samples are not synchronised to the disk: a power
// failure may lose the last seconds. What cannot be written is kept in memory and written later,
// see [History.Flush]. One process at a time may use a directory; the others get an error.
//
// If the clock steps back, samples of later times are replaced.
//
// The package has no clock: its callers pass the time. It is safe for concurrent use.
package history

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema/x/internal/filelock"
)

const (
	// Fine is the interval of samples, which are kept for Recent.
	Fine   = 5 * time.Second
	Recent = time.Hour
	// Coarse is the interval of samples that are kept for Long. Each has the highest values of its
	// interval, and the sums of Grants and Failures.
	Coarse = time.Minute
	Long   = 24 * time.Hour
	// Budget is the default limit of the memory of all samples.
	Budget = 64 << 20
)

// A Sample is the state of a semaphore at one moment, and what has happened since the last one.
type Sample struct {
	InUse, Effective, Waiting          int64
	Grants, Failures                   int64 // since the last sample
	HeadAge                            time.Duration
	WaitP50, WaitP99, HoldP50, HoldP99 time.Duration // of the last minutes
}

// A Point is a sample at a time.
type Point struct {
	At time.Time
	Sample
}

// A Curve is the past of a semaphore: points in order of time. Where two points are further apart
// than three steps, nothing is known of the time in between.
type Curve struct {
	Step   time.Duration
	Points []Point
}

// A History keeps samples of any number of semaphores within a budget of memory.
type History struct {
	budget int64

	mu           sync.Mutex
	fine, coarse *ring
	minute       map[string]Sample // of the minute that has not ended yet
	minuteTick   int64
	viewed       map[string]*viewed
	events       events
	lock         *os.File // nil: memory only
}

// Open returns the history that a directory contains. "" keeps the history in memory only.
// Budget is in bytes; 0: [Budget].
func Open(directory string, budget int64, now time.Time) (*History, error) {
	if budget == 0 {
		budget = Budget
	}
	h := &History{
		budget: budget, fine: newRing("fine", Fine, Recent), coarse: newRing("coarse", Coarse, Long), minute: map[string]Sample{}, viewed: map[string]*viewed{},
	}
	if directory == "" {
		return h, nil
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("open the history: %w", err)
	}
	var err error
	if h.lock, err = lock(directory); err != nil {
		return nil, err
	}
	for _, r := range []*ring{h.fine, h.coarse} {
		if err := r.load(directory, now); err != nil {
			return nil, errors.Join(err, h.Close())
		}
	}
	if err := h.events.load(directory, now); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	h.trimLocked()
	return h, nil
}

// Record adds a sample of every semaphore at a time. A semaphore that is missing has ended.
func (h *History) Record(now time.Time, samples map[string]Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tick := now.UnixNano() / int64(Fine)
	if tick <= h.fine.last && tick >= h.fine.last-longestPause {
		return // it has a sample, or the clock has stepped back a little: it catches up soon
	}
	h.fine.record(tick, samples)
	minute := now.UnixNano() / int64(Coarse)
	if h.minuteTick != 0 && minute != h.minuteTick {
		h.coarse.record(h.minuteTick, h.minute)
		clear(h.minute)
	}
	h.minuteTick = minute
	for name, s := range samples {
		h.minute[name] = peak(h.minute[name], s)
	}
	h.fine.expire(now)
	h.coarse.expire(now)
	h.trimLocked()
	h.forgetViewedLocked(now)
}

// trimLocked drops the oldest segments beyond the budget.
func (h *History) trimLocked() {
	for h.fine.bytes+h.coarse.bytes > h.budget && h.shrinkLocked() {
	}
}

// shrinkLocked drops the oldest segment of the larger ring. It reports whether there was one.
func (h *History) shrinkLocked() bool {
	r := h.fine
	if h.coarse.bytes > r.bytes {
		r = h.coarse
	}
	return r.drop()
}

// peak returns the highest values of two samples, and the sums of what happened.
func peak(a, b Sample) Sample {
	return Sample{
		InUse: max(a.InUse, b.InUse), Effective: max(a.Effective, b.Effective), Waiting: max(a.Waiting, b.Waiting),
		Grants: a.Grants + b.Grants, Failures: a.Failures + b.Failures, HeadAge: max(a.HeadAge, b.HeadAge),
		WaitP50: max(a.WaitP50, b.WaitP50), WaitP99: max(a.WaitP99, b.WaitP99), HoldP50: max(a.HoldP50, b.HoldP50), HoldP99: max(a.HoldP99, b.HoldP99),
	}
}

// Flush writes what could not be written before, and drops old events from their file. It returns
// why the files in the directory are incomplete; nil: they have all that is kept. Call it every few
// seconds.
func (h *History) Flush() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range []*ring{h.fine, h.coarse} {
		if r.file != nil {
			r.file.flush()
		}
	}
	h.events.tidy()
	return h.errLocked()
}

// Err returns why the files in the directory are incomplete; nil: they have all that is kept.
func (h *History) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.errLocked()
}

func (h *History) errLocked() error {
	for _, r := range []*ring{h.fine, h.coarse} {
		if r.file != nil && r.file.err != nil {
			return r.file.err
		}
	}
	return h.events.err
}

// Curve returns the past of a semaphore since a time. It has the finest samples that reach back
// so far.
func (h *History) Curve(name string, since, now time.Time) Curve {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(since) > Recent+Coarse {
		c := Curve{Coarse, h.coarse.points(name, since)}
		if s, ok := h.minute[name]; ok {
			c.Points = append(c.Points, Point{now, s})
		}
		return c
	}
	c := Curve{Fine, h.fine.points(name, since)}
	if v := h.viewed[name]; v != nil {
		c.Points = v.over(c.Points, since, now)
	}
	return c
}

// Bytes returns the memory of all samples.
func (h *History) Bytes() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fine.bytes + h.coarse.bytes
}

// Close closes the files, and unlocks the directory.
func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []error
	for _, f := range []*log{h.fine.file, h.coarse.file, h.events.file} {
		if f != nil {
			all = append(all, f.close())
		}
	}
	if h.lock != nil {
		filelock.Unlock(h.lock)
		all = append(all, h.lock.Close())
		h.lock = nil
	}
	return errors.Join(all...)
}

const (
	// mostViewed bounds the semaphores with samples of a second.
	mostViewed = 64
	// viewedFor is how long samples of a second are kept.
	viewedFor = 15 * time.Minute
)

// A viewed contains the samples of a second of a semaphore that is, or was, viewed.
type viewed struct{ points []Point }

// View adds a sample of a semaphore that is being viewed, unless there is one of the same second.
// It is kept in memory only. Grants and Failures of the sample are those since the last sample of
// any kind.
func (h *History) View(name string, at time.Time, sample func() Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.viewed[name]
	if v == nil {
		if len(h.viewed) >= mostViewed {
			return
		}
		v = &viewed{}
		h.viewed[name] = v
	}
	for n := len(v.points); n > 0 && v.points[n-1].At.After(at.Add(longestPause*Fine)); n-- { // the clock has stepped back
		v.points = v.points[:n-1]
	}
	if n := len(v.points); n > 0 && at.Sub(v.points[n-1].At) < time.Second/2 {
		return
	}
	v.points = append(v.points, Point{at, sample()})
}

func (h *History) forgetViewedLocked(now time.Time) {
	for name, v := range h.viewed {
		old, _ := slices.BinarySearchFunc(v.points, now.Add(-viewedFor), func(p Point, t time.Time) int { return p.At.Compare(t) })
		if v.points = append(v.points[:0], v.points[old:]...); len(v.points) == 0 {
			delete(h.viewed, name)
		}
	}
}

// over returns points with those of a second added. What those have is not counted again in the
// regular samples after them.
func (v *viewed) over(points []Point, since, now time.Time) []Point {
	first := len(points)
	for _, p := range v.points {
		if !p.At.Before(since) && !p.At.After(now) {
			points = append(points, p)
		}
	}
	extra := points[first:]
	var counted Sample // what samples of a second have had since the last regular one
	for i, regular := 0, points[:first]; i < len(regular); i++ {
		for ; len(extra) > 0 && !extra[0].At.After(regular[i].At); extra = extra[1:] {
			counted.Grants, counted.Failures = counted.Grants+extra[0].Grants, counted.Failures+extra[0].Failures
		}
		p := &regular[i]
		p.Grants, p.Failures = max(0, p.Grants-counted.Grants), max(0, p.Failures-counted.Failures)
		counted = Sample{}
	}
	slices.SortStableFunc(points, func(a, b Point) int { return a.At.Compare(b.At) })
	return points
}
