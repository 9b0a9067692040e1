package main

import (
	"math/rand/v2"

	"github.com/sema-go/sema/fleet/protocol"
)

const (
	ms     protocol.Micros = 1000
	second                 = 1000 * ms
)

// params are a world. The same ones give the same run, to the last event.
type params struct {
	seed          uint64
	instances     int
	rtts          []protocol.Micros // from each region to the global engine
	localRTT      protocol.Micros   // within a region
	rate          float64           // acquires a second of each instance; Poisson
	hold          protocol.Micros   // the mean; exponential
	capacity      int64
	policy        policy
	ttl           protocol.Micros
	quantum       protocol.Micros // how long an instance reuses blocks while others wait
	regionQuantum protocol.Micros // how long a region does
	patience      protocol.Micros // after which a caller gives up
	warm, span    protocol.Micros // what is not measured, and what is
	faults        []fault
	sabotage      sabotage
}

// A sabotage is a way to break the protocol, by which the checks are checked.
type sabotage uint8

const (
	honest   sabotage = iota
	deaf              // a region that is cut off goes on as if it were not
	giveLent          // a region gives back what its instances still have
)

// A world is everything there is in a run.
type world struct {
	*wheel
	p         params
	rng       *rand.Rand
	global    *engine
	regions   []*region
	instances []instance
	links     []link // of the instances, then of the regions
	letters   []letter
	blank     int32 // the first of the letters that are not in use; -1: none
	inUse     int64 // by all instances
	measuring bool
	m         measures
}

func newWorld(p params) *world {
	w := &world{
		wheel: newWheel(), p: p, rng: rand.New(rand.NewPCG(p.seed, 1)), blank: -1,
		instances: make([]instance, p.instances), links: make([]link, p.instances+len(p.rtts)),
	}
	w.global = newEngine(w, p.capacity, 0)
	for i, rtt := range p.rtts {
		r := &region{world: w, id: int32(p.instances + i), crowd: 1}
		r.engine = newEngine(w, 0, p.capacity)
		r.engine.region = r
		w.regions = append(w.regions, r)
		w.links[r.id] = link{engine: w.global, owner: r, rtt: rtt}
		w.open(r.id)
	}
	for i := range w.instances {
		in := &w.instances[i]
		*in = instance{world: w, id: int32(i), region: w.regions[i%len(w.regions)]}
		w.links[i] = link{engine: in.region.engine, owner: in, rtt: p.localRTT}
		start := protocol.Micros(w.rng.Int64N(int64(startWithin)))
		w.watch(in.id, start)
		w.file(event{at: start, kind: arrives, who: in.id})
	}
	for i := range w.p.faults {
		w.file(event{at: p.faults[i].from, kind: strikes, who: int32(i)})
		w.file(event{at: p.faults[i].to, kind: strikes, who: int32(i), life: 1})
	}
	w.file(event{kind: samples})
	return w
}

// startWithin is the time in which instances start: a deployment, not a stampede.
const startWithin = 2 * second

// run lets everything happen.
func (w *world) run() *world {
	w.until(w.p.warm)
	w.measuring = true
	w.m.begin(w)
	w.until(w.p.warm + w.p.span)
	w.m.finish(w)
	return w
}

func (w *world) until(end protocol.Micros) {
	for {
		e, ok := w.take(end)
		if !ok {
			return
		}
		w.m.events++
		switch e.kind {
		case arrives:
			w.instances[e.who].arrive(e)
		case holdEnds:
			w.instances[e.who].done(e)
		case looks:
			w.look(e)
		case hinted:
			w.hint(e)
		case delivered:
			w.deliver(e.who)
		case answered:
			w.answer(e.who)
		case strikes:
			w.strike(&w.p.faults[e.who], e.life == 0)
		case samples:
			w.m.sample(w)
			w.file(event{at: w.now + sampleEvery, kind: samples})
		}
	}
}

// busy is the only place where the number of permits in use changes: those that
// are used by somebody who, by its instance's own clock, may. Their sum over all
// instances must never exceed the capacity, nor a region's what the region has.
func (w *world) busy(r *region, by int64) {
	r.settle(w.now)
	r.busy += by
	w.inUse += by
	if by <= 0 {
		return
	}
	w.m.most = max(w.m.most, w.inUse)
	if w.inUse > w.p.capacity {
		w.m.over++
	}
	if r.busy > r.held {
		w.m.overRegion++
	}
}
