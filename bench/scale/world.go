package main

import (
	"math/rand/v2"

	"github.com/sema-go/sema/fleet/protocol"
)

const (
	ms     protocol.Micros = 1000
	second                 = 1000 * ms
)

// params are the parameters of a run. The same parameters give the same run,
// event by event.
type params struct {
	seed          uint64
	instances     int
	rtts          []protocol.Micros // from each region to the global store
	localRTT      protocol.Micros   // within a region
	rate          float64           // acquires a second of each instance; Poisson distributed
	hold          protocol.Micros   // mean hold time; exponentially distributed
	capacity      int64
	policy        policy
	ttl           protocol.Micros
	quantum       protocol.Micros // for how long an instance reuses blocks while others wait
	regionQuantum protocol.Micros // for how long a region does
	timeout       protocol.Micros // after which a caller gives up
	warm, span    protocol.Micros // warm-up, which is not measured, and measured time
	faults        []fault
	injectedBug   injectedBug
}

// An injectedBug breaks the protocol, to test that the checks detect it.
type injectedBug uint8

const (
	noBug        injectedBug = iota
	ignoresLease             // a region that is cut off keeps lending after its lease has ended
	releasesLent             // a region releases permits that its instances still hold
)

// A world is the state of one run.
type world struct {
	*wheel
	p           params
	rng         *rand.Rand
	global      *store
	regions     []*region
	instances   []instance
	links       []link // of the instances, then of the regions
	messages    []message
	freeMessage int32 // index of the first unused message; -1: none
	inUse       int64 // permits in use by all instances
	measuring   bool
	m           measures
}

func newWorld(p params) *world {
	w := &world{
		wheel: newWheel(), p: p, rng: rand.New(rand.NewPCG(p.seed, 1)), freeMessage: -1,
		instances: make([]instance, p.instances), links: make([]link, p.instances+len(p.rtts)),
	}
	w.global = newStore(w, p.capacity, 0)
	for i, rtt := range p.rtts {
		r := &region{world: w, id: int32(p.instances + i), demandFactor: 1}
		r.store = newStore(w, 0, p.capacity)
		r.store.region = r
		w.regions = append(w.regions, r)
		w.links[r.id] = link{store: w.global, owner: r, rtt: rtt}
		w.open(r.id)
	}
	for i := range w.instances {
		in := &w.instances[i]
		*in = instance{world: w, id: int32(i), region: w.regions[i%len(w.regions)]}
		w.links[i] = link{store: in.region.store, owner: in, rtt: p.localRTT}
		start := protocol.Micros(w.rng.Int64N(int64(startWithin)))
		w.setTimer(in.id, start)
		w.schedule(event{at: start, kind: arrival, index: in.id})
	}
	for i := range w.p.faults {
		w.schedule(event{at: p.faults[i].from, kind: faultChanges, index: int32(i)})
		w.schedule(event{at: p.faults[i].to, kind: faultChanges, index: int32(i), generation: 1})
	}
	w.schedule(event{kind: sampleDue})
	return w
}

// startWithin is the time over which instances start: as in a deployment, not
// all at once.
const startWithin = 2 * second

// run runs the simulation.
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
		e, ok := w.pop(end)
		if !ok {
			return
		}
		w.m.events++
		switch e.kind {
		case arrival:
			w.instances[e.index].arrive(e)
		case holdEnd:
			w.instances[e.index].done(e)
		case timerFires:
			w.timerFired(e)
		case notified:
			w.notify(e)
		case requestArrives:
			w.requestArrived(e.index)
		case replyArrives:
			w.replyArrived(e.index)
		case faultChanges:
			w.setFault(&w.p.faults[e.index], e.generation == 0)
		case sampleDue:
			w.m.sample(w)
			w.schedule(event{at: w.now + sampleEvery, kind: sampleDue})
		}
	}
}

// addInUse adds n permits to those in use, in a region and in total. No other
// code changes these numbers. A permit counts while its instance's own clock
// allows its use. The total must never exceed the capacity, and that of a
// region never what the region holds.
func (w *world) addInUse(r *region, n int64) {
	r.accumulate(w.now)
	r.busy += n
	w.inUse += n
	if n <= 0 {
		return
	}
	w.m.maxInUse = max(w.m.maxInUse, w.inUse)
	if w.inUse > w.p.capacity {
		w.m.overAdmitted++
	}
	if r.busy > r.held {
		w.m.overAdmittedRegion++
	}
}
