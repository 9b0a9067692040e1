package server

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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

	mu     sync.Mutex // held while the store is listed
	listed time.Time
	took   time.Duration
	after  string // last name that was reconciled, so that every semaphore has its turn
	before map[string]totals
	queues []string // semaphores with waiters, at the last list
}

// totals are the counters of a semaphore at its last sample.
type totals struct{ grants, failures uint64 }

func newSampler(s *service) *sampler { return &sampler{service: s, before: map[string]totals{}} }

// run samples until the server is closed.
func (p *sampler) run() {
	for {
		now := time.Now()
		next := now.Truncate(sampleEvery).Add(sampleEvery)
		select {
		case <-p.service.life.Done():
			return
		case <-time.After(next.Sub(now)):
		}
		p.refresh(p.service.life, sampleEvery/2)
		p.record(time.Now())
		if err := p.service.history.Flush(); err != nil {
			p.service.journal.error("history", "the history is incomplete on the disk, and is written again every "+sampleEvery.String(), "error", err)
		}
	}
}

// record adds a sample of every measured semaphore to the history.
func (p *sampler) record(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.listed) > 2*listShare*max(p.took, sampleEvery/listShare) {
		return // the store cannot be read: nothing is known
	}
	all, _ := p.service.meter.All()
	samples := make(map[string]history.Sample, len(all))
	for _, s := range all {
		if s.Name == meter.FoldedName || !s.State().Known {
			continue
		}
		was, now := p.before[s.Name], totals{s.Total(meter.Acquired), s.Failures()}
		sample := p.sample(s)
		if now.grants >= was.grants && now.failures >= was.failures { // otherwise the series is new
			sample.Grants, sample.Failures = int64(now.grants-was.grants), int64(now.failures-was.failures)
		}
		p.before[s.Name], samples[s.Name] = now, sample
	}
	for name := range p.before {
		if _, ok := samples[name]; !ok {
			delete(p.before, name)
		}
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.listed) < max(age, listShare*p.took) {
		return
	}
	asked := time.Now()
	states, err := p.list(ctx)
	if err != nil {
		return // requests report an outage of the store
	}
	p.listed, p.took = time.Now(), time.Since(asked)
	now := make(map[string]meter.State, len(states))
	for _, s := range states {
		now[s.Name] = stateOf(s)
	}
	p.queues = p.queues[:0]
	for _, s := range states {
		if s.Waiting > 0 {
			p.queues = append(p.queues, s.Name)
		}
	}
	p.folded.Store(int64(p.service.meter.Observe(now, p.listed)))
	p.reconcile(ctx, states)
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
func (p *sampler) withWaiters(ctx context.Context) []string {
	p.refresh(ctx, sampleEvery)
	p.mu.Lock()
	defer p.mu.Unlock()
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
		p.service.meter.Reconcile(name, &snapshot, asked, time.Now())
	}
}
