package main

import (
	"math/bits"

	"github.com/sema-go/sema/fleet/protocol"
)

// measures are what a run is about.
type measures struct {
	// What must be 0, from the first event on.
	over       int64 // permits taken while the capacity was in use
	overRegion int64 // permits taken while all that a region had was in use
	outlived   int64 // permits in use in a region when its blocks were not its own any more

	events  int64
	most    int64 // in use at a time
	lost    int64 // in use when a session ended, or a process
	ended   int64 // sessions that were lost
	crashed int64
	gaveUp  int64

	before    []counts // of the engines, when measuring began
	impatient int64
	waits     histogram
	timeline  []moment
}

// A moment is a sample for a plot.
type moment struct {
	at   protocol.Micros
	busy []int64 // of each region
	held []int64 // what the region may lend
}

const sampleEvery = 10 * ms

// begin forgets what was before.
func (m *measures) begin(w *world) {
	m.impatient = m.gaveUp
	for _, e := range w.engines() {
		m.before = append(m.before, e.counts)
		e.delays = histogram{}
	}
	for _, r := range w.regions {
		r.area, r.last = 0, w.now
	}
}

func (m *measures) finish(w *world) {
	m.gaveUp -= m.impatient
	for i, e := range w.engines() {
		e.counts.batches -= m.before[i].batches
		e.counts.wishes -= m.before[i].wishes
		e.counts.hints -= m.before[i].hints
		e.counts.resizes -= m.before[i].resizes
	}
	for _, r := range w.regions {
		r.settle(w.now)
	}
}

// engines are the global one, and then the regions'.
func (w *world) engines() []*engine {
	all := []*engine{w.global}
	for _, r := range w.regions {
		all = append(all, r.engine)
	}
	return all
}

func (m *measures) sample(w *world) {
	now := moment{at: w.now}
	for _, r := range w.regions {
		now.busy = append(now.busy, r.busy)
		now.held = append(now.held, r.held)
	}
	m.timeline = append(m.timeline, now)
}

// perSecond is a count as a rate.
func (w *world) perSecond(n int64) float64 { return float64(n) / (float64(w.p.span) / float64(second)) }

// regional is what the regions' engines counted together.
func (w *world) regional(count func(counts) int64) (sum int64) {
	for _, r := range w.regions {
		sum += count(r.engine.counts)
	}
	return sum
}

func batches(c counts) int64 { return c.batches }
func hints(c counts) int64   { return c.hints }

// served is how many callers got a permit, of how many that came.
func (w *world) served() (served, offered int64) {
	for i := range w.instances {
		served += w.instances[i].served
		offered += w.instances[i].offered
	}
	return served, offered
}

// utilisation is the part of the capacity that was in use.
func (w *world) utilisation() float64 {
	area := 0.0
	for _, r := range w.regions {
		area += r.area
	}
	return area / float64(w.p.span) / float64(w.p.capacity)
}

// fairness is Jain's index of the part of its callers that was served, among
// instances and among regions.
func (w *world) fairness() (instances, regions float64) {
	each := make([]float64, 0, len(w.instances))
	served, offered := make([]float64, len(w.regions)), make([]float64, len(w.regions))
	for i := range w.instances {
		in := &w.instances[i]
		if in.offered > 0 {
			each = append(each, float64(in.served)/float64(in.offered))
		}
		served[i%len(w.regions)] += float64(in.served)
		offered[i%len(w.regions)] += float64(in.offered)
	}
	for i := range served {
		served[i] /= max(1, offered[i])
	}
	return jain(each), jain(served)
}

// jain is Jain's index of how evenly something is shared: 1 if all have the
// same, 1/n if one has everything.
func jain(shares []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// A histogram counts times in buckets of a thirty-second of their size.
type histogram struct {
	counts [64 * 32]int64
	n      int64
}

func (h *histogram) add(t protocol.Micros) {
	h.counts[bucket(uint64(max(t, 0)))]++
	h.n++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.n += other.n
}

// bucket is exact up to 63; from there on it is the six leading bits.
func bucket(t uint64) int {
	if t < 32 {
		return int(t)
	}
	shift := bits.Len64(t) - 6
	return shift*32 + int(t>>shift)
}

// quantile is below which a part of all times lie, in milliseconds.
func (h *histogram) quantile(q float64) float64 {
	left := int64(q * float64(h.n))
	for i, n := range h.counts {
		if left -= n; left < 0 {
			return float64(lowest(i)) / float64(ms)
		}
	}
	return 0
}

// lowest is the lowest time in a bucket.
func lowest(bucket int) protocol.Micros {
	if bucket < 64 {
		return protocol.Micros(bucket)
	}
	shift := bucket/32 - 1
	return protocol.Micros(bucket-shift*32) << shift
}
