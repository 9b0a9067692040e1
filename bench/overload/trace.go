package overload

import (
	"math"
	"math/rand/v2"
	"time"
)

// A Load describes the requests of a scenario.
type Load struct {
	For     time.Duration
	Phases  []Phase       // of the offered load; the last one lasts until For
	Slow    Span          // in which each request takes SlowBy times as long
	SlowBy  float64       // 0: 1
	Classes []Class       // none: one class
	Wide    float64       // fraction of requests with cost WideCost
	Cancel  float64       // fraction of requests whose client leaves, after 20 ms on average
	Storm   time.Duration // every so often all clients that are there leave at once; 0: never
}

// WideCost is the cost of a wide request, of [Slots].
const WideCost = 8

const cancelMean = 20 * time.Millisecond

// A Phase is a load from a time on, as a multiple of what the slots can serve.
type Phase struct {
	From time.Duration
	Load float64
}

// A Span is a time from From to To.
type Span struct{ From, To time.Duration }

func (s Span) contains(t time.Duration) bool { return t >= s.From && t < s.To }

// A Class is a tenant that offers Load in all phases, whatever Phase.Load is.
type Class struct {
	Name   string
	Weight int64
	Load   float64
}

// A Request is a request of a trace.
type Request struct {
	At      time.Duration
	Service time.Duration // with a slot of its own, at normal speed
	Class   string
	Cost    int64
	Cancel  time.Duration // after which its client leaves; 0: it stays
}

// work returns the slot-time that the request needs.
func (r Request) work() time.Duration { return r.Service * time.Duration(r.Cost) }

// Trace returns the requests of a load, in order of arrival. Each class is a Poisson process.
func (l Load) Trace(seed uint64) []Request {
	rng := rand.New(rand.NewPCG(seed, 1))
	classes := l.Classes
	if len(classes) == 0 {
		classes = []Class{{}}
	}
	costMean := 1 + l.Wide*(WideCost-1)
	var all []Request
	for at := time.Duration(0); ; {
		load := l.phase(at).Load
		sum := 0.0
		for _, c := range classes {
			sum += max(load, c.Load)
		}
		gap := float64(ServiceMean) * costMean / Slots / sum
		at += max(1, time.Duration(rng.ExpFloat64()*gap))
		if at >= l.For {
			return all
		}
		r := Request{At: at, Cost: 1, Service: time.Duration(float64(ServiceMean) * math.Exp(sigma*rng.NormFloat64()-sigma*sigma/2))}
		pick := rng.Float64() * sum
		for _, c := range classes {
			if pick -= max(load, c.Load); pick < 0 {
				r.Class = c.Name
				break
			}
		}
		if rng.Float64() < l.Wide {
			r.Cost = WideCost
		}
		if rng.Float64() < l.Cancel {
			r.Cancel = max(1, time.Duration(rng.ExpFloat64()*float64(cancelMean)))
		}
		if l.Storm > 0 {
			if left := l.Storm - at%l.Storm; r.Cancel == 0 || left < r.Cancel {
				r.Cancel = left
			}
		}
		all = append(all, r)
	}
}

// phase returns the phase at a time.
func (l Load) phase(at time.Duration) (p Phase) {
	for _, next := range l.Phases {
		if next.From <= at {
			p = next
		}
	}
	return p
}

// factor returns how many times as long as usual a request takes that starts at a time.
func (l Load) factor(at time.Duration) float64 {
	if l.SlowBy != 0 && l.Slow.contains(at) {
		return l.SlowBy
	}
	return 1
}

// ServiceP99 returns the p99 of service times.
func ServiceP99() time.Duration {
	const z99 = 2.3263
	return time.Duration(float64(ServiceMean) * math.Exp(sigma*z99-sigma*sigma/2))
}
