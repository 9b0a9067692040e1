package tune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Config describes a measurement. Only Work is required.
type Config struct {
	// Work calls the dependency once. It is called by as many goroutines at a time as the
	// capacity that is measured. A call that returns an error has failed.
	Work func(ctx context.Context) error
	// Min and Max bound the capacities. Default 1 and 256.
	Min, Max int64
	// Only lists the capacities to measure, all of them. Default: those that Run chooses.
	Only []int64
	// Each is how long a capacity is measured. Default 5s. It is longer, up to ten times,
	// while fewer than 20 calls, or two for each goroutine, have ended. Calls under way at
	// the end count: those that do not end within ten times as long after it, although
	// their context then ends, have failed.
	Each time.Duration
	// MaxP99 excludes capacities at which the p99 of the calls is longer. Default: none.
	MaxP99 time.Duration
	// MaxFailed excludes capacities at which a greater part of the calls fails. Default 0.01.
	MaxFailed float64
	// Headroom is the part by which the proposal exceeds what was needed. Default 0.2.
	Headroom float64
	// Report is called after each capacity that was measured. Default: none.
	Report func(Step)
}

// A Step is what was measured with one capacity.
type Step struct {
	Capacity   int64
	Calls      int64         // calls that began while it was measured
	Failed     int64         // those that returned an error
	Err        error         // of the first one that failed; nil: none did
	Elapsed    time.Duration // how long it was measured
	Throughput float64       // calls a second that did not fail; one that was under way at the end counts in part
	P50, P99   time.Duration // durations of the calls that did not fail
	Excluded   string        // why the capacity cannot be proposed; "": it can
}

// A Result is a proposal, and what it is based on.
type Result struct {
	Steps    []Step // by capacity
	Needed   int64  // the least capacity with almost all of the throughput; 0: every capacity is excluded
	Proposed int64  // Needed with headroom; 0: none
	Why      string // one sentence
}

// enough is the part of the best throughput that a capacity must yield to be needed.
// rising is the factor by which the throughput must rise for a further doubling.
const (
	enough = 0.95
	rising = 1.05
)

// Run measures capacities and proposes one. If ctx ends, it returns what was measured with
// the cause. It fails with an error if the configuration is invalid.
func Run(ctx context.Context, c Config) (Result, error) {
	if err := c.complete(); err != nil {
		return Result{}, err
	}
	t := &tuner{config: c}
	var err error
	if len(c.Only) > 0 {
		err = t.sweep(ctx)
	} else {
		err = t.climb(ctx)
	}
	return t.result(), err
}

// complete checks the configuration and sets the defaults.
func (c *Config) complete() error {
	orDefault(&c.Min, 1)
	orDefault(&c.Max, max(256, c.Min))
	orDefault(&c.Each, 5*time.Second)
	orDefault(&c.MaxFailed, 0.01)
	orDefault(&c.Headroom, 0.2)
	switch {
	case c.Work == nil:
		return errors.New("tune: Config.Work is nil; want a function that calls the dependency once")
	case c.Min < 1 || c.Max < c.Min || c.Max > maxGoroutines:
		return fmt.Errorf("tune: Min %d and Max %d: want 1 ≤ Min ≤ Max ≤ %d", c.Min, c.Max, maxGoroutines)
	case c.Each <= 0 || c.MaxP99 < 0 || !(c.MaxFailed > 0 && c.MaxFailed <= 1) || !(c.Headroom > 0 && c.Headroom <= 10):
		return fmt.Errorf("tune: Each %v, MaxP99 %v, MaxFailed %v, Headroom %v: want durations that are not negative, a part up to 1, and a headroom up to 10", c.Each, c.MaxP99, c.MaxFailed, c.Headroom)
	case slices.ContainsFunc(c.Only, func(n int64) bool { return n < 1 || n > maxGoroutines }):
		return fmt.Errorf("tune: Only %v: want capacities from 1 to %d", c.Only, maxGoroutines)
	}
	return nil
}

// maxGoroutines bounds the memory of a measurement.
const maxGoroutines = 1 << 16

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// A tuner is one run.
type tuner struct {
	config Config
	steps  []Step // by capacity
}

// sweep measures the capacities that the user has listed.
func (t *tuner) sweep(ctx context.Context) error {
	for _, n := range t.config.Only {
		if _, err := t.measure(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// climb doubles the capacity while the throughput rises. It then halves two gaps until they
// are a tenth: that between the largest capacity that is not excluded and the next one, and
// that below the least capacity that suffices.
func (t *tuner) climb(ctx context.Context) error {
	best, flat := 0.0, 0
	for n := t.config.Min; ; n = min(2*n, t.config.Max) {
		s, err := t.measure(ctx, n)
		if err != nil {
			return err
		}
		if s.Throughput > best*rising && s.Excluded == "" {
			flat = 0
		} else {
			flat++
		}
		best = max(best, s.Throughput)
		// One flat step may be a fluke, and one that is excluded may be, too.
		if flat == 2 || n == t.config.Max {
			break
		}
	}
	for _, gap := range []func() (low, high int64){t.edge, t.gap} {
		for {
			low, high := gap()
			if high-low <= max(1, high/10) {
				break
			}
			if _, err := t.measure(ctx, low+(high-low)/2); err != nil {
				return err
			}
		}
	}
	return nil
}

// edge returns the first capacity that is excluded, if the one before it suffices, and that
// one. Otherwise both are 0: capacities in between would not yield more.
func (t *tuner) edge() (low, high int64) {
	best := t.best()
	for i, s := range t.steps {
		if i > 0 && s.Excluded != "" && t.steps[i-1].sufficient(best) {
			return t.steps[i-1].Capacity, s.Capacity
		}
	}
	return 0, 0
}

// gap returns the least capacity that suffices, and the next smaller one that was measured.
// If no capacity suffices, both are 0.
func (t *tuner) gap() (below, needed int64) {
	best := t.best()
	for _, s := range t.steps {
		if s.sufficient(best) {
			return below, s.Capacity
		}
		below = s.Capacity
	}
	return 0, 0
}

// best returns the highest throughput of a capacity that is not excluded.
func (t *tuner) best() (best float64) {
	for _, s := range t.steps {
		if s.Excluded == "" {
			best = max(best, s.Throughput)
		}
	}
	return best
}

func (s Step) sufficient(best float64) bool {
	return s.Excluded == "" && s.Throughput > 0 && s.Throughput >= enough*best
}

// result returns the proposal.
func (t *tuner) result() Result {
	r := Result{Steps: t.steps}
	if len(t.steps) == 0 {
		r.Why = "nothing was measured"
		return r
	}
	_, r.Needed = t.gap()
	if r.Needed == 0 {
		r.Why = "every capacity is excluded: " + t.steps[0].Excluded
		return r
	}
	r.Proposed = int64(math.Ceil(float64(r.Needed) * (1 + t.config.Headroom)))
	at := t.steps[slices.IndexFunc(t.steps, func(s Step) bool { return s.Capacity == r.Needed })]
	r.Why = fmt.Sprintf("%d at a time yield %.0f %% of the best throughput, %s a second, with a p99 of %v", r.Needed, 100*at.Throughput/t.best(), perSecond(at.Throughput), short(at.P99))
	for _, s := range t.steps { // headroom must not reach what is excluded
		if s.Excluded != "" && s.Capacity > r.Needed && s.Capacity <= r.Proposed {
			r.Proposed = s.Capacity - 1
			r.Why += fmt.Sprintf("; %d is excluded: %s", s.Capacity, s.Excluded)
			break
		}
	}
	if last := t.steps[len(t.steps)-1]; last.Capacity == r.Needed && last.Capacity == t.config.Max {
		r.Why += "; the throughput still rises at the largest capacity measured: raise Max"
	}
	return r
}
