package main

import (
	"math/bits"

	"github.com/sema-go/sema/fleet/protocol"
)

// measures are the results of a run.
type measures struct {
	// These must be 0, from the first event on.
	overAdmitted       int64 // permits granted while the whole capacity was in use
	overAdmittedRegion int64 // permits granted while everything that a region held was in use
	outlived           int64 // permits in use in a region when its lease had ended

	events   int64
	maxInUse int64 // in use at a time
	lost     int64 // in use when a session or a process ended
	ended    int64 // sessions that were lost
	crashed  int64
	timedOut int64

	before         []counts // of the stores, when measuring began
	timedOutBefore int64
	waits          histogram
	timeline       []moment
}

// A moment is a sample for a plot.
type moment struct {
	at   protocol.Micros
	busy []int64 // per region
	held []int64 // per region: what it may lend
}

const sampleEvery = 10 * ms

// begin resets the measures after the warm-up.
func (m *measures) begin(w *world) {
	m.timedOutBefore = m.timedOut
	for _, e := range w.stores() {
		m.before = append(m.before, e.counts)
		e.delays = histogram{}
	}
	for _, r := range w.regions {
		r.area, r.last = 0, w.now
	}
}

func (m *measures) finish(w *world) {
	m.timedOut -= m.timedOutBefore
	for i, e := range w.stores() {
		e.counts.batches -= m.before[i].batches
		e.counts.ops -= m.before[i].ops
		e.counts.notifications -= m.before[i].notifications
		e.counts.resizes -= m.before[i].resizes
	}
	for _, r := range w.regions {
		r.accumulate(w.now)
	}
}

// stores returns the global store, followed by those of the regions.
func (w *world) stores() []*store {
	all := []*store{w.global}
	for _, r := range w.regions {
		all = append(all, r.store)
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

// perSecond returns a count as a rate.
func (w *world) perSecond(n int64) float64 { return float64(n) / (float64(w.p.span) / float64(second)) }

// regional returns the sum of a count over the regional stores.
func (w *world) regional(count func(counts) int64) (sum int64) {
	for _, r := range w.regions {
		sum += count(r.store.counts)
	}
	return sum
}

func batches(c counts) int64       { return c.batches }
func notifications(c counts) int64 { return c.notifications }

// served returns how many callers got a permit, and how many arrived.
func (w *world) served() (served, offered int64) {
	for i := range w.instances {
		served += w.instances[i].served
		offered += w.instances[i].offered
	}
	return served, offered
}

// utilisation returns the part of the capacity that was in use.
func (w *world) utilisation() float64 {
	area := 0.0
	for _, r := range w.regions {
		area += r.area
	}
	return area / float64(w.p.span) / float64(w.p.capacity)
}

// fairness returns Jain's index of the served part of callers, among instances
// and among regions.
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

// jain returns Jain's fairness index: 1 if all shares are equal, 1/n if one has
// everything.
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

// A histogram counts times in buckets whose width is a thirty-second of the time.
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

// bucket returns the bucket of a time: exact up to 63, then by the six leading
// bits.
func bucket(t uint64) int {
	if t < 32 {
		return int(t)
	}
	shift := bits.Len64(t) - 6
	return shift*32 + int(t>>shift)
}

// quantile returns the time below which a part q of all times lies, in
// milliseconds.
func (h *histogram) quantile(q float64) float64 {
	left := int64(q * float64(h.n))
	for i, n := range h.counts {
		if left -= n; left < 0 {
			return float64(lowest(i)) / float64(ms)
		}
	}
	return 0
}

// lowest returns the lowest time in a bucket.
func lowest(bucket int) protocol.Micros {
	if bucket < 64 {
		return protocol.Micros(bucket)
	}
	shift := bucket/32 - 1
	return protocol.Micros(bucket-shift*32) << shift
}
