package overload

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// A record is what happened to a request.
type record struct {
	Request
	took     time.Duration // from its arrival to its end or rejection
	admitted bool
	served   bool          // processed to the end
	within   time.Duration // slot-time that it took before the end of the scenario, at normal speed
	left     bool          // its client left before the end
}

func (r record) good() bool { return r.served && !r.left && r.took <= Deadline }

// Run offers the requests of a trace to a gate. It must be called in a testing/synctest
// bubble.
func Run(l Load, seed uint64, i Implementation) Result {
	g := i.Make(l.Classes)
	trace := l.Trace(seed)
	records := make([]record, len(trace))
	service := &service{load: l, start: time.Now(), slots: semaphore.NewWeighted(Slots)}
	if g.Load != nil {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go service.report(ctx, g.Load)
	}
	var wg sync.WaitGroup
	for k, r := range trace {
		time.Sleep(time.Until(service.start.Add(r.At)))
		wg.Go(func() { records[k] = service.serve(g, r) })
	}
	wg.Wait()
	out := summarise(l, records)
	if !i.Unbounded && !i.Adapts {
		out.Overshoot = max(0, service.most-Slots)
	}
	out.Leaked = leaked(g)
	if g.Stop != nil {
		g.Stop()
	}
	return out
}

// A service processes the requests that were admitted. Those beyond its slots wait inside,
// in order of arrival, until their client leaves.
type service struct {
	load  Load
	start time.Time
	slots *semaphore.Weighted

	mu      sync.Mutex
	running int64 // cost of all admitted requests
	most    int64
	busy    time.Duration // slot-time of the requests whose processing has begun, see report
}

// serve lets a request ask for admission, and processes it.
func (s *service) serve(g Gate, r Request) record {
	arrived := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	if r.Cancel > 0 {
		defer time.AfterFunc(r.Cancel, cancel).Stop()
	}
	done, err := g.Admit(ctx, r.Class, r.Cost)
	if err != nil {
		return ended(r, arrived)
	}
	s.count(r.Cost)
	within, served := s.process(ctx, r)
	s.count(-r.Cost)
	out := ended(r, arrived)
	out.admitted, out.served, out.within = true, served, within
	switch {
	case out.left:
		done(Left)
	case out.good():
		done(OK)
	default:
		done(Late)
	}
	return out
}

// process processes a request to its end, also if its client leaves meanwhile. It reports
// whether it did: a request whose client leaves before is not processed. within is the part
// of its work before the end of the scenario.
func (s *service) process(ctx context.Context, r Request) (within time.Duration, served bool) {
	if s.slots.Acquire(ctx, r.Cost) != nil {
		return 0, false
	}
	began := time.Since(s.start)
	took := max(1, time.Duration(float64(r.Service)*s.load.factor(began)))
	s.mu.Lock()
	s.busy += took * time.Duration(r.Cost)
	s.mu.Unlock()
	time.Sleep(took)
	s.slots.Release(r.Cost)
	return r.work() * min(took, max(0, s.load.For-began)) / took, true
}

// report calls notify with the load of the slots, until ctx ends.
func (s *service) report(ctx context.Context, notify func(busy float64)) {
	ticker := time.NewTicker(loadEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.mu.Lock()
			notify(min(1, float64(s.busy)/float64(loadEvery*Slots)))
			s.busy = 0
			s.mu.Unlock()
		}
	}
}

// ended returns the record of a request that ends now.
func ended(r Request, arrived time.Time) record {
	took := time.Since(arrived)
	return record{Request: r, took: took, left: r.Cancel > 0 && took >= r.Cancel}
}

func (s *service) count(cost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running += cost
	s.most = max(s.most, s.running)
}

// leaked returns how many permits are held though no request is under way.
func leaked(g Gate) int64 {
	time.Sleep(time.Second)
	if g.InUse != nil {
		return g.InUse()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	free := int64(0)
	for range Slots {
		wg.Go(func() {
			if done, err := g.Admit(ctx, "", 1); err == nil {
				mu.Lock()
				free++
				mu.Unlock()
				<-ctx.Done()
				done(OK)
			}
		})
	}
	wg.Wait()
	return Slots - free
}
