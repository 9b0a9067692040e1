package admit

import (
	"errors"
	"math"
	"time"
)

// bounds are the bounds of a limit. Limits are fractions between windows, so that small
// changes add up.
type bounds struct {
	min, max int64
	exact    float64 // 0: not known yet
}

// use sets the bounds, or their defaults.
func (b *bounds) use(least, most int64) *bounds {
	b.min, b.max = least, most
	orDefault(&b.min, 1)
	orDefault(&b.max, 1000)
	return b
}

// check returns an error if no limit is within the bounds.
func (b *bounds) check() error {
	if b.min < 1 || b.max < b.min {
		return errors.New("want Min from 1 and Max from Min")
	}
	return nil
}

// start returns the limit as a fraction.
func (b *bounds) start(current int64) float64 {
	if int64(math.Round(b.exact)) != current && current > 0 {
		b.exact = float64(current) // set by an operator, or the first window
	}
	return min(max(b.exact, float64(b.min)), float64(b.max))
}

// set returns a new limit within the bounds.
func (b *bounds) set(limit float64) int64 {
	b.exact = min(max(limit, float64(b.min)), float64(b.max))
	return int64(math.Round(b.exact))
}

// AIMD raises the limit by Increase in each window that used at least half of it, and
// multiplies it by Backoff if requests were dropped or took longer than Timeout. It learns
// of overload only from the result Dropped, or by the Timeout.
type AIMD struct {
	Min, Max int64         // bounds of the limit; default 1 and 1000
	Increase float64       // default 1
	Backoff  float64       // default 0.9
	Timeout  time.Duration // mean duration that counts as overload; 0: none

	bounds bounds
}

// Next implements [Limit].
func (l *AIMD) Next(w Window) int64 {
	increase, backoff := l.steps()
	limit := l.bounds.use(l.Min, l.Max).start(w.Limit)
	switch {
	case w.Dropped > 0, l.Timeout > 0 && w.Mean > l.Timeout:
		limit *= backoff
	case w.busy():
		limit += increase
	}
	return l.bounds.set(limit)
}

func (l *AIMD) steps() (increase, backoff float64) {
	increase, backoff = l.Increase, l.Backoff
	orDefault(&increase, 1)
	orDefault(&backoff, 0.9)
	return increase, backoff
}

func (l *AIMD) check() error {
	if increase, backoff := l.steps(); !(increase > 0 && increase <= math.MaxInt64) || !(backoff > 0 && backoff < 1) || l.Timeout < 0 {
		return errors.New("AIMD: want a positive Increase, a Backoff between 0 and 1, and a Timeout from 0")
	}
	return new(bounds).use(l.Min, l.Max).check()
}

// A prober lowers the limit for one window in probeEvery. What is queued inside the
// dependency then drains, so that requests take as long as they do without load. Without
// probes, a limit that is always reached would take the wait that it causes itself for the
// normal duration, and rise without end.
type prober struct {
	windows int
	probing bool
	real    float64 // the limit outside the probe
}

const (
	probeEvery = 100 // 10 seconds
	probeShare = 0.5 // below 1/gradientTolerance, or else each probe would measure what the last rise has caused
)

// ended reports whether the window was a probe, and returns the limit from before it.
func (p *prober) ended(limit float64) (float64, bool) {
	if !p.probing {
		return limit, false
	}
	p.probing = false
	return p.real, true
}

// next returns the limit of the next window.
func (p *prober) next(limit float64, b *bounds) int64 {
	n := b.set(limit)
	if p.windows++; p.windows%probeEvery != 0 {
		return n
	}
	p.probing, p.real = true, b.exact
	return b.set(b.exact * probeShare)
}

// Vegas estimates how many requests wait inside the dependency, from how much longer they
// take on average than in the fastest window, and keeps that number small: as TCP Vegas does
// for packets. Every 10 seconds it halves the limit for 100 ms, to measure how long
// requests take without load.
type Vegas struct {
	Min, Max int64 // bounds of the limit; default 1 and 1000

	bounds  bounds
	prober  prober
	fastest time.Duration // mean duration without load; the shortest one means nothing where durations vary
}

// A dependency may become slower for good. So the fastest duration rises by this factor in
// each window, and a faster request lowers it again.
const forgetFastest = 1.001

func (l *Vegas) check() error { return new(bounds).use(l.Min, l.Max).check() }

// Next implements [Limit].
func (l *Vegas) Next(w Window) int64 {
	limit, probed := l.prober.ended(l.bounds.use(l.Min, l.Max).start(w.Limit))
	if w.Calls > 0 {
		l.fastest = time.Duration(float64(l.fastest) * forgetFastest)
		if l.fastest == 0 || w.Mean < l.fastest {
			l.fastest = max(1, w.Mean)
		}
	}
	step := max(1, math.Log10(limit))
	switch queued := l.queued(w, limit); {
	case w.Dropped > 0:
		limit -= step
	case probed, !w.busy():
	case queued <= step:
		limit += 6 * step
	case queued < 3*step:
		limit += step
	case queued > 6*step:
		limit -= step
	}
	return l.prober.next(limit, &l.bounds)
}

// queued returns how many requests wait inside the dependency.
func (l *Vegas) queued(w Window, limit float64) float64 {
	if w.Mean <= l.fastest {
		return 0
	}
	return math.Ceil(limit * (1 - float64(l.fastest)/float64(w.Mean)))
}

// Gradient compares how long requests take now with how long they took over a longer time.
// It lowers the limit in proportion if that is more than half as long again, and raises it
// otherwise. Every 10 seconds it halves the limit for 100 ms, to measure how
// long requests take without load.
type Gradient struct {
	Min, Max int64 // bounds of the limit; default 1 and 1000

	bounds bounds
	prober prober
	long   float64 // mean duration over about gradientWindows
}

const (
	gradientWindows   = 600.0
	gradientTolerance = 1.5
	gradientQueue     = 4 // requests that may wait inside the dependency
	gradientSmoothing = 0.2
)

func (l *Gradient) check() error { return new(bounds).use(l.Min, l.Max).check() }

// Next implements [Limit].
func (l *Gradient) Next(w Window) int64 {
	limit, probed := l.prober.ended(l.bounds.use(l.Min, l.Max).start(w.Limit))
	short := float64(w.Mean)
	if w.Calls > 0 {
		if l.long == 0 || probed && short < l.long {
			l.long = short
		}
		l.long += (short - l.long) / gradientWindows
		if l.long > 2*short { // the dependency has recovered: forget the slow time faster
			l.long *= 0.95
		}
	}
	switch {
	case w.Dropped > 0:
		limit *= 0.9
	case w.busy() && w.Calls > 0 && !probed:
		room := float64(gradientQueue)
		if short < 1.1*l.long { // nothing waits inside the dependency: rise quickly
			room = max(room, limit/4)
		}
		gradient := min(max(gradientTolerance*l.long/short, 0.5), 1)
		limit += gradientSmoothing * (gradient*limit + room - limit)
	}
	return l.prober.next(limit, &l.bounds)
}

// DryRun returns a limit that changes nothing: it calls report with the limit in force and
// with the one that l would have set. So a limit can be tried out in production.
func DryRun(l Limit, report func(current, proposed int64)) Limit { return &dryRun{l, report} }

type dryRun struct {
	limit  Limit
	report func(current, proposed int64)
}

func (d *dryRun) check() error {
	if v, ok := d.limit.(interface{ check() error }); ok {
		return v.check()
	}
	return nil
}

// Next implements [Limit].
func (d *dryRun) Next(w Window) int64 {
	d.report(w.Limit, d.limit.Next(w))
	return w.Limit
}
