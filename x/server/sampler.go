package server

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/history"
	"github.com/sema-go/sema/x/server/internal/meter"
)

const (
	// sampleEvery is the interval at which all semaphores are listed for metrics and history.
	sampleEvery = 5 * time.Second
	// listShare bounds the time that lists take: a list that took d is not repeated before
	// listShare times d.
	listShare = 20
	// reconciled bounds how many semaphores a sample inspects. Only those are inspected that
	// clients also use elsewhere, or whose clients have disappeared.
	reconciled = 16
)

// A sampler lists all semaphores periodically. It sets what the meter cannot know from the
// requests of this server: capacities, permits in use and waiters, for all clients of the store.
type sampler struct {
	service *service
	folded  atomic.Int64 // semaphores without a series of their own
	latest  atomic.Pointer[map[string]history.Sample]

	skew    atomic.Int64 // nanoseconds by which the clock of the store is ahead of this one
	known   atomic.Int64 // until when the last list counts as the present, in nanoseconds since the start
	started time.Time

	turn   chan struct{} // full while the store is listed; guards the fields below
	tried  time.Time     // the last list that was begun
	failed bool          // it has failed
	took   time.Duration // the last list that succeeded
	after  string        // last name that was reconciled, so that every semaphore has its turn
	queues []queue       // semaphores with waiters, at the last list
}

// A queue is a semaphore with waiters.
type queue struct {
	name   string
	grants uint64    // acquired until now, as this server has measured
	since  time.Time // it has had waiters at every list since then, and granted nothing
}

func newSampler(s *service) *sampler {
	return &sampler{service: s, started: time.Now(), turn: make(chan struct{}, 1)}
}

// lock waits until the store is not being listed. It reports false if the context ends first.
func (p *sampler) lock(ctx context.Context) bool {
	select {
	case p.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *sampler) unlock() { <-p.turn }

// fresh reports whether the last list still counts as the present.
func (p *sampler) fresh(now time.Time) bool {
	return now.Sub(p.started) < time.Duration(p.known.Load())
}

// run samples until the server is closed.
func (p *sampler) run() {
	p.readClock(p.service.life)
	for {
		now := time.Now()
		next := now.Truncate(sampleEvery).Add(sampleEvery)
		select {
		case <-p.service.life.Done():
			return
		case <-time.After(next.Sub(now)):
		}
		p.readClock(p.service.life)
		p.refresh(p.service.life, sampleEvery/2)
		p.record(time.Now())
		if err := p.service.history.Flush(); err != nil {
			p.service.journal.error("history", "the history is incomplete on the disk, and is written again every "+sampleEvery.String(), "error", err)
		}
	}
}

// readClock compares the clock of the store with that of this server. Both may be corrected at any
// time.
func (p *sampler) readClock(ctx context.Context) {
	store, ok := p.service.store.Store.(fleet.Examiner)
	if !ok {
		return
	}
	var clock time.Time
	asked := time.Now()
	err := withinTimeout(ctx, func(ctx context.Context) (err error) { clock, err = store.Ping(ctx); return err })
	if err == nil && !clock.IsZero() { // otherwise it uses the clocks of its clients, or the last value is the best guess
		replied := time.Now()
		p.skew.Store(int64(clock.Round(0).Sub(asked.Round(0).Add(replied.Sub(asked) / 2))))
	}
}

// storeTime returns the time that the clock of the store shows at a time of this one. Ages of
// what the store lists are differences to it.
func (p *sampler) storeTime(now time.Time) time.Time { return now.Add(time.Duration(p.skew.Load())) }

// record adds a sample of every measured semaphore to the history, unless the store cannot be read.
func (p *sampler) record(now time.Time) {
	if !p.fresh(now) {
		return
	}
	all, _ := p.service.meter.All()
	samples := make(map[string]history.Sample, len(all))
	for _, s := range all {
		if s.Name == meter.FoldedName || !s.State().Known {
			continue
		}
		sample, since := p.sample(s), s.Sampled()
		sample.Grants, sample.Failures = int64(since.Grants), int64(since.Failures)
		samples[s.Name] = sample
	}
	p.latest.Store(&samples)
	p.service.history.Record(now, samples)
}

// sample returns the state of a semaphore, without what has happened since the last sample.
func (p *sampler) sample(s *meter.Series) history.Sample {
	now, state := time.Now(), s.State()
	f, open := s.Figures(now), p.service.meter.Open(s.Name)
	sample := history.Sample{
		InUse: state.InUse, Effective: state.Effective, Waiting: state.Waiting,
		WaitP50: f.WaitP50, WaitP99: f.WaitP99, HoldP50: f.HoldP50, HoldP99: f.HoldP99,
	}
	if !open.HeadSince.IsZero() {
		sample.HeadAge = max(0, now.Sub(open.HeadSince))
	}
	return sample
}

// refresh lists the semaphores, unless the last list is younger than an age.
func (p *sampler) refresh(ctx context.Context, age time.Duration) {
	if !p.lock(ctx) {
		return
	}
	defer p.unlock()
	pause := max(age, listShare*p.took)
	if p.failed {
		pause = max(age, sampleEvery/2)
	}
	if time.Since(p.tried) < pause {
		return
	}
	p.tried = time.Now()
	states, err := p.list(ctx)
	if p.failed = err != nil; p.failed {
		return // requests report an outage of the store
	}
	listed := time.Now()
	p.took = listed.Sub(p.tried)
	p.known.Store(int64(listed.Sub(p.started) + 2*max(listShare*p.took, sampleEvery)))
	now := make(map[string]meter.State, len(states))
	for _, s := range states {
		now[s.Name] = stateOf(s)
	}
	p.folded.Store(int64(p.service.meter.Observe(now, listed)))
	p.setQueues(states, listed)
	p.reconcile(ctx, states)
}

// setQueues sets the semaphores with waiters.
func (p *sampler) setQueues(states []protocol.Summary, now time.Time) {
	before := make(map[string]queue, len(p.queues))
	for _, q := range p.queues {
		before[q.name] = q
	}
	p.queues = nil
	for _, s := range states {
		if s.Waiting == 0 {
			continue
		}
		q := queue{name: s.Name, since: now}
		if series := p.service.meter.Series(s.Name); series != nil {
			q.grants = series.Total(meter.Acquired)
		}
		if was, ok := before[s.Name]; ok && was.grants == q.grants {
			q.since = was.since
		}
		p.queues = append(p.queues, q)
	}
}

// list returns all semaphores. It does not log failures: a sample is not a request.
func (p *sampler) list(ctx context.Context) (all []protocol.Summary, err error) {
	for after := ""; ; {
		var page []protocol.Summary
		err := withinTimeout(ctx, func(ctx context.Context) (err error) {
			page, err = p.service.store.Store.List(ctx, protocol.ListQuery{After: after})
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, s := range page {
			if s.Name != readyName {
				all = append(all, s)
			}
		}
		if len(page) < protocol.MaxPage {
			return all, nil
		}
		after = page[len(page)-1].Name
	}
}

// withWaiters returns the semaphores with waiters, as of the last sample.
func (p *sampler) withWaiters(ctx context.Context) []queue {
	p.refresh(ctx, sampleEvery)
	if !p.lock(ctx) {
		return nil
	}
	defer p.unlock()
	return slices.Clone(p.queues)
}

func stateOf(s protocol.Summary) meter.State {
	return meter.State{
		Capacity: s.Config.Capacity, Effective: s.Effective, InUse: s.InUse, Waiting: s.Waiting,
		Draining: s.Config.Draining, Rate: s.Config.Kind == protocol.Rate,
	}
}

// reconcile inspects semaphores of which the store has other figures than the meter, a few at a
// time.
func (p *sampler) reconcile(ctx context.Context, states []protocol.Summary) {
	wanted := map[string]bool{}
	for _, name := range p.service.meter.Sweep(time.Now()) {
		wanted[name] = true
	}
	for _, s := range states {
		open := p.service.meter.Open(s.Name)
		if s.Config.Kind != protocol.Rate && open.InUse != s.InUse || open.Waiting != s.Waiting {
			wanted[s.Name] = true
		}
	}
	for round, n := 0, 0; round < 2 && n < reconciled; round++ {
		for _, s := range states {
			if !wanted[s.Name] || round == 0 && s.Name <= p.after || n == reconciled {
				continue
			}
			n++
			delete(wanted, s.Name)
			p.after = s.Name
			p.compare(ctx, s.Name)
		}
		if n < reconciled {
			p.after = ""
		}
	}
}

// compare inspects a semaphore, and corrects what the meter knows of it.
func (p *sampler) compare(ctx context.Context, name string) {
	asked := time.Now()
	var snapshot protocol.Snapshot
	err := withinTimeout(ctx, func(ctx context.Context) (err error) {
		snapshot, err = p.service.store.Store.Inspect(ctx, name)
		return err
	})
	if err == nil {
		p.service.meter.Reconcile(name, &snapshot, time.Duration(p.skew.Load()), asked, time.Now())
	}
}
