package sema

import (
	"context"
	"math"
)

// A Sampler is an [Observer] for which a sample of the permits that were granted at once is
// enough, such as an exporter of metrics: the counters of [Stats] contain the rest.
//
// If all observers of a gate are Samplers, and nothing is diagnosed, they receive
//
//   - EventQueued, and the event that ends the wait, for each acquire that waits;
//   - EventAcquired of other acquires for one permit in SampleEvery;
//   - EventReleased for one permit in SampleEvery, waited or not;
//   - EventRejected and the other kinds always, but neither EventExhausted nor
//     EventRecovered.
//
// Then a pair of Acquire and Release that does not wait reads no clock, and costs 4 to 10 ns
// more than one without observers. Permits with leases, such as those of package fleet, are
// reported always. Those of a [Counter] are never held, so only its waits are reported.
type Sampler interface {
	Observer
	// SampleEvery returns the number of permits of which one is reported. It must not
	// change. 1 or less: all.
	SampleEvery() int
}

// A WaitObserver is an [Observer] that follows each wait from its start to its end, such as
// one that traces requests.
type WaitObserver interface {
	Observer
	// ObserveWait receives a caller that is about to wait, after Observe. ctx is the
	// context of the caller, and queued the event EventQueued. The result receives the
	// event that ends the wait, after Observe; it may be nil.
	ObserveWait(ctx context.Context, queued Event) (ended func(Event))
}

// sampleLimit returns the limit of the hash up to which a generation is sampled. It is 0,
// which means that all events are reported, unless all observers are Samplers.
//
// The hash of a generation is a multiple of the golden ratio, modulo one. Multiples of an
// irrational number are equidistributed, also those of every second or third generation. So
// a caller whose permits alternate between long and short ones gets a fair sample of both.
// The first generation has hash 0 and is always sampled.
func sampleLimit(observers []Observer) uint64 {
	every := math.MaxInt
	for _, o := range observers {
		s, ok := o.(Sampler)
		if !ok {
			return 0
		}
		every = min(every, s.SampleEvery())
	}
	return math.MaxUint64 / uint64(max(1, every))
}

// SkipsBegin reports whether an acquire that does not wait may skip Begin, and call
// [Monitor.Granted] when it has taken its permits. That saves most of what an observer
// costs. It is false for a nil Monitor, which needs neither.
func (m *Monitor) SkipsBegin() bool { return m != nil && !m.traces }

// Granted issues and reports the permit of an acquire that did not wait and skipped Begin.
// If an observer panics, the permit is released.
func (m *Monitor) Granted(i *Issuer, n int64) Permit { return m.issue(i, n) }

// sampled reports whether the permits of a generation are part of the sample.
func (m *Monitor) sampled(gen uint64) bool {
	const golden = 0x9e3779b97f4a7c15
	return gen>>1*golden <= m.samples
}

// permit issues a permit, and reports whether it is part of the sample. Then it has the
// time of its acquire.
func (m *Monitor) permit(i *Issuer, n int64) (p Permit, sampled bool) {
	p = i.Permit(n)
	if sampled = m.sampled(p.gen); sampled {
		p.handle.since.Store(sinceEpoch())
	}
	return p, sampled
}

// reportsRelease reports whether the release of a permit is reported. since is 0 for a part
// of a permit that was not sampled; other permits that are not sampled have any value.
func (m *Monitor) reportsRelease(gen uint64, since int64) bool {
	return m.samples == 0 || m.sampled(gen) && since != 0
}

// follow calls the observers that follow waits, once for each acquire.
func (w *Wait) follow(queued *Event) {
	if w.ended != nil {
		return // a gate may queue a caller again
	}
	for _, o := range w.m.observers {
		f, ok := o.(WaitObserver)
		if !ok {
			continue
		}
		ended, others := f.ObserveWait(w.ctx, *queued), w.ended
		switch {
		case ended == nil:
		case others == nil:
			w.ended = ended
		default:
			w.ended = func(e Event) { others(e); ended(e) }
		}
	}
}
