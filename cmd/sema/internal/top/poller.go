package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/explain"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
	"github.com/sema-go/sema/internal/survey"
)

// An inspector is the part of [scope.Scope] that the poller uses.
type inspector interface {
	Names(ctx context.Context, prefix string) ([]string, error)
	Inspect(ctx context.Context, name string) (scope.State, error)
	Measure(ctx context.Context, prefix string, states []scope.State)
	Now(ctx context.Context) time.Time
	Configure(ctx context.Context, name string, c scope.Change) error
	Revoke(ctx context.Context, name string, r scope.Revocation) error
}

// A page is the result of one poll.
type page struct {
	semaphores []semaphore
	more       int // number of semaphores that were not read yet
}

// A semaphore is the state of one semaphore.
type semaphore struct {
	scope.State
	now     time.Time // when the page was read, on the clock of the scope
	failure string    // why it could not be read; "": it was read
	deleted bool
}

// processOf describes the process of a holder or a waiter.
func processOf(p scope.Participant) string {
	switch {
	case p.Host != "" && p.Process != 0:
		return fmt.Sprintf("%s/%d", p.Host, p.Process)
	case p.Host != "":
		return p.Host
	case p.Process != 0:
		return fmt.Sprintf("process %d", p.Process)
	}
	return "unknown process"
}

// A poller reads the semaphores of a scope. It is safe for concurrent use.
type poller struct {
	scope inspector

	mu     sync.Mutex // held during a poll
	survey survey.Survey
	read   map[string]semaphore // by name, as last read

	times    map[string]*scope.Times // by name, as last measured
	measured time.Time
	took     time.Duration // of the last measurement
}

const (
	// mostRead is the number of semaphores, by waiters, that every poll reads.
	mostRead = 500
	// atATime is the number of concurrent reads.
	atATime = 8
	// surveyTime bounds the time in which a poll reads the others, and that of a measurement.
	surveyTime = 2 * time.Second
	// measureEvery is the interval at which all semaphores are measured. Measurements that took d are
	// not repeated before measureShare times d.
	measureEvery = 5 * time.Second
	measureShare = 20
)

// poll reads the selected semaphore, those with the most waiters, and some of the others. The
// result contains the last known state of those that it does not read.
func (p *poller) poll(ctx context.Context, prefix, selected string) (result page, err error) {
	names, err := p.scope.Names(ctx, prefix)
	if err != nil {
		return result, err
	}
	p.mu.Lock() // each action is followed by a poll in addition to the regular ones
	defer p.mu.Unlock()
	p.survey.Keep(names)
	now := p.scope.Now(ctx)
	top := p.survey.Top(names, mostRead, func(a, b survey.Load) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Use, a.Use))
	})
	if slices.Contains(names, selected) && !slices.Contains(top, selected) {
		top = append(top, selected)
	}
	read := p.readAll(ctx, top)
	soon, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	maps.Copy(read, p.readAll(soon, p.survey.Due(time.Now(), names, top)))
	if err := ctx.Err(); err != nil {
		return result, err
	}
	for _, name := range names {
		one, known := read[name]
		if !known {
			one, known = p.read[name]
		}
		if known {
			one.now = now
			read[name] = one
		}
		if known && !one.deleted {
			result.semaphores = append(result.semaphores, one)
		}
	}
	p.read = read
	p.measure(ctx, prefix, selected, result.semaphores)
	result.more = p.survey.Totals(names).Unknown
	return result, nil
}

// measure sets the times of all semaphores. Those of the selected one, which its page shows, are new.
func (p *poller) measure(ctx context.Context, prefix, selected string, all []semaphore) {
	if start := time.Now(); start.Sub(p.measured) >= max(measureEvery, measureShare*p.took) {
		states := make([]scope.State, len(all))
		for i := range all {
			states[i] = all[i].State
		}
		soon, cancel := context.WithTimeout(ctx, surveyTime)
		p.scope.Measure(soon, prefix, states)
		cancel()
		p.measured, p.took = time.Now(), time.Since(start)
		p.times = make(map[string]*scope.Times, len(states))
		for _, s := range states {
			p.times[s.Name] = s.Times
		}
	}
	for i := range all {
		all[i].Times = all[i].WithAges(p.times[all[i].Name], all[i].now)
		if all[i].Name == selected {
			one := []scope.State{all[i].State}
			p.scope.Measure(ctx, prefix, one)
			all[i].Times = one[0].Times
		}
	}
}

// readAll reads semaphores until ctx ends.
func (p *poller) readAll(ctx context.Context, names []string) map[string]semaphore {
	all := make([]semaphore, len(names))
	turns := make(chan struct{}, atATime)
	var wg sync.WaitGroup
	for i, name := range names {
		turns <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-turns }()
			all[i] = p.inspect(ctx, name)
		})
	}
	wg.Wait()
	read := make(map[string]semaphore, len(names))
	for _, one := range all {
		if one.Name != "" {
			read[one.Name] = one
		}
	}
	return read
}

// inspect reads a semaphore. It returns the zero value if ctx ends first.
func (p *poller) inspect(ctx context.Context, name string) semaphore {
	state, err := p.scope.Inspect(ctx, name)
	one := semaphore{State: state}
	one.Name = name
	switch at := time.Now(); {
	case errors.Is(err, fs.ErrNotExist):
		p.survey.Forget(name)
		one.deleted = true
	case err != nil && ctx.Err() != nil:
		return semaphore{}
	case err != nil:
		p.survey.Fail(name, at)
		one.failure, _ = explain.Error(err)
	default:
		p.survey.Note(name, survey.Load{At: at, Waiting: int64(one.Waiting), Use: one.utilisation()})
	}
	return one
}

func (p *poller) drain(ctx context.Context, name string, draining bool) error {
	return p.scope.Configure(ctx, name, scope.Change{Draining: &draining})
}

func (p *poller) resize(ctx context.Context, name string, capacity int64) error {
	return p.scope.Configure(ctx, name, scope.Change{Capacity: &capacity})
}

func (p *poller) revoke(ctx context.Context, name string, lease uint64) error {
	return p.scope.Revoke(ctx, name, scope.Revocation{Lease: lease, Why: "sema top"})
}
