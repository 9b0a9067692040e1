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
	ended     bool // later calls do not count
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
		return fmt.Sprintf("%.2g %% of the calls fail (%v)", 100*float64(s.Failed)/float64(s.Calls), s.Err)
	case c.MaxP99 > 0 && s.P99 > c.MaxP99:
		return fmt.Sprintf("the p99 is %v", s.P99.Round(s.P99/100+1))
	}
	return ""
}

// run calls Work in as many goroutines as the capacity. The loop is closed: each goroutine
// calls again when its call has ended, as callers behind a semaphore do that is never free.
func (t *tuner) run(ctx context.Context, capacity int64) (Step, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &sample{step: Step{Capacity: capacity}}
	var callers sync.WaitGroup
	start := time.Now()
	calling, end := context.WithCancel(ctx) // ends new calls, not those under way
	for range capacity {
		callers.Go(func() {
			for calling.Err() == nil {
				began := time.Now()
				err := t.config.Work(ctx)
				s.add(time.Since(began), err)
			}
		})
	}
	err := t.wait(ctx, s, max(20, 2*capacity))
	s.mu.Lock()
	s.ended = true
	s.step.Elapsed = time.Since(start)
	s.mu.Unlock()
	end()
	callers.Wait()
	if err != nil {
		return Step{}, err
	}
	return s.result(), nil
}

// wait waits until a capacity was measured for long enough.
func (t *tuner) wait(ctx context.Context, s *sample, calls int64) error {
	const most = 10
	for range most {
		timer := time.NewTimer(t.config.Each)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		s.mu.Lock()
		n := s.step.Calls
		s.mu.Unlock()
		if n >= calls {
			return nil
		}
	}
	return nil
}

// add adds the result of a call.
func (s *sample) add(took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.step.Calls++
	if err != nil {
		s.step.Failed++
		if s.step.Err == nil {
			s.step.Err = err
		}
		return
	}
	if len(s.durations) < maxDurations {
		s.durations = append(s.durations, took)
	} else if i := rand.Int64N(s.step.Calls - s.step.Failed); i < maxDurations {
		s.durations[i] = took
	}
}

// result returns the step. No goroutine uses the sample any more.
func (s *sample) result() Step {
	step := s.step
	step.Throughput = float64(step.Calls-step.Failed) / step.Elapsed.Seconds()
	slices.Sort(s.durations)
	if n := len(s.durations); n > 0 {
		step.P50, step.P99 = s.durations[n/2], s.durations[n*99/100]
	}
	return step
}
