package tune

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// maxDurations bounds the durations that a step keeps. Beyond it a random sample is kept.
const maxDurations = 100_000

// A sample collects the results of calls.
type sample struct {
	mu        sync.Mutex // guards what follows
	step      Step
	durations []time.Duration
	done      float64   // calls that did not fail; of one that went on after the end, the part before
	end       time.Time // later calls do not count; zero: the measurement goes on
}

// measure measures a capacity, unless that was done, and adds the step.
func (t *tuner) measure(ctx context.Context, capacity int64) (Step, error) {
	at, found := slices.BinarySearchFunc(t.steps, capacity, func(s Step, n int64) int { return int(s.Capacity - n) })
	if found {
		return t.steps[at], nil
	}
	s, err := t.run(ctx, capacity)
	if err != nil {
		return Step{}, err
	}
	s.Excluded = t.config.excludes(s)
	t.steps = slices.Insert(t.steps, at, s)
	if t.config.Report != nil {
		t.config.Report(s)
	}
	return s, nil
}

// excludes returns why a capacity cannot be proposed.
func (c *Config) excludes(s Step) string {
	switch {
	case float64(s.Failed) > c.MaxFailed*float64(s.Calls):
		return fmt.Sprintf("%.3g %% of the calls fail (%v)", 100*float64(s.Failed)/float64(s.Calls), s.Err)
	case c.MaxP99 > 0 && s.P99 > c.MaxP99:
		return fmt.Sprintf("the p99 is %v", short(s.P99))
	}
	return ""
}

// most is how many times Each a capacity is measured at most, and as long again until the
// calls under way have ended.
const most = 10

// run calls Work in as many goroutines as the capacity. The loop is closed: each goroutine
// calls again when its call has ended, as callers behind a semaphore do that is never free.
//
// A call under way at the end counts as well: slow calls are the likeliest to be under way,
// and without them a capacity at which calls hang would look good.
func (t *tuner) run(ctx context.Context, capacity int64) (Step, error) {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s := &sample{step: Step{Capacity: capacity}}
	var callers sync.WaitGroup
	start := time.Now()
	calling, end := context.WithCancel(ctx) // ends new calls, not those under way
	for range capacity {
		callers.Go(func() {
			for calling.Err() == nil {
				began := time.Now()
				err := t.config.Work(working)
				if err != nil && working.Err() != nil {
					err = context.Cause(working)
				}
				s.add(began, time.Now(), err)
			}
		})
	}
	t.wait(ctx, s, max(20, 2*capacity))
	s.mu.Lock()
	s.end = time.Now()
	s.step.Elapsed = s.end.Sub(start)
	s.mu.Unlock()
	end()
	limit := most * t.config.Each
	last := time.AfterFunc(limit, func() { stop(fmt.Errorf("a call did not end within %v after the measurement", limit)) })
	defer last.Stop()
	callers.Wait()
	if ctx.Err() != nil {
		return Step{}, context.Cause(ctx)
	}
	return s.result(), nil
}

// wait waits until a capacity was measured for long enough, or ctx ends.
func (t *tuner) wait(ctx context.Context, s *sample, calls int64) {
	for range most {
		timer := time.NewTimer(t.config.Each)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		s.mu.Lock()
		n := s.step.Calls
		s.mu.Unlock()
		if n >= calls {
			return
		}
	}
}

// add adds the result of a call.
func (s *sample) add(began, ended time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	took, part := ended.Sub(began), 1.0
	if !s.end.IsZero() && ended.After(s.end) {
		if !began.Before(s.end) {
			return
		}
		part = s.end.Sub(began).Seconds() / took.Seconds()
	}
	s.step.Calls++
	if err != nil {
		s.step.Failed++
		if s.step.Err == nil {
			s.step.Err = err
		}
		return
	}
	s.done += part
	if len(s.durations) < maxDurations {
		s.durations = append(s.durations, took)
	} else if i := rand.Int64N(s.step.Calls - s.step.Failed); i < maxDurations {
		s.durations[i] = took
	}
}

// result returns the step. No goroutine uses the sample any more.
func (s *sample) result() Step {
	step := s.step
	step.Throughput = s.done / step.Elapsed.Seconds()
	slices.Sort(s.durations)
	if n := len(s.durations); n > 0 {
		step.P50, step.P99 = s.durations[n/2], s.durations[n*99/100]
	}
	return step
}
