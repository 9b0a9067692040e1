package main

import (
	"fmt"

	"github.com/sema-go/sema/fleet/protocol"
)

// base returns the parameters that all experiments vary: each instance makes
// 100 acquires a second and holds for 100 ms, so ten permits of each are in use
// on average. The capacity is 15 permits per instance.
func base(seed uint64, n int) params {
	p := params{
		seed: seed, instances: n,
		rtts: []protocol.Micros{60 * ms, 90 * ms, 120 * ms}, localRTT: ms,
		rate: 100, hold: 100 * ms, policy: sharing,
		ttl: 3 * second, quantum: 50 * ms, regionQuantum: 50 * ms, timeout: second,
		warm: 6 * second, span: 5 * second,
	}
	return p.loaded(2.0 / 3)
}

// loaded sets the capacity so that demand/capacity is load.
func (p params) loaded(load float64) params {
	p.capacity = int64(float64(p.instances)*p.rate*float64(p.hold)/float64(second)/load + 0.5)
	return p
}

// results are all worlds that were run.
type results struct {
	full      *world   // the base
	fewer     *world   // with a tenth of the instances; also in sizes
	doubling  *world   // fewer, with the other policy
	sizes     []*world // with fewer instances
	holds     [2][]*world
	holdLoads [2]float64
	quanta    []*world
	loads     []*world
	peak      *world
	partition *world
}

// small returns the number of instances for experiments with many runs.
func small(n int) int { return max(3, n/10) }

// runAll runs all experiments one after the other.
func runAll(seed uint64, n int, progress func(name string, i, of int)) *results {
	r := &results{holdLoads: [2]float64{2.0 / 3, 5.0 / 6}}
	i, of := 0, 4+len(sizes)+len(holdTimes)*len(r.holds)+len(quanta)+len(loads)
	run := func(name string, p params) *world {
		i++
		progress(name, i, of)
		return newWorld(p).run()
	}
	for _, part := range sizes {
		p := base(seed, max(3, n/part))
		r.sizes = append(r.sizes, run(fmt.Sprintf("%d instances", p.instances), p))
		if p.instances == small(n) {
			r.fewer = r.sizes[len(r.sizes)-1]
		}
	}
	r.full = run(fmt.Sprintf("%d instances", n), base(seed, n))
	r.sizes = append(r.sizes, r.full)
	for k, load := range r.holdLoads {
		for _, hold := range holdTimes {
			p := base(seed, small(n))
			p.hold = hold
			r.holds[k] = append(r.holds[k], run(fmt.Sprintf("load %.2f, held for %d ms", load, hold/ms), p.loaded(load)))
		}
	}
	for _, quantum := range quanta {
		p := base(seed, small(n)).loaded(1.1)
		p.quantum, p.regionQuantum = quantum, quantum
		r.quanta = append(r.quanta, run(fmt.Sprintf("load 1.1, quantum %d ms", quantum/ms), p))
	}
	for _, load := range loads {
		r.loads = append(r.loads, run(fmt.Sprintf("load %.2f", load), base(seed, small(n)).loaded(load)))
	}
	other := base(seed, small(n))
	other.policy = doubling
	r.doubling = run("the doubling policy", other)
	r.peak = run("a demand peak", demandPeak(seed, n))
	r.partition = run("a partition", partitioned(seed, n))
	return r
}

var (
	sizes     = []int{100, 30, 10, 3} // divisors of the number of instances
	holdTimes = []protocol.Micros{5 * ms, 10 * ms, 20 * ms, 50 * ms, 100 * ms, 200 * ms, 500 * ms}
	quanta    = []protocol.Micros{5 * ms, 10 * ms, 20 * ms, 50 * ms, 100 * ms, 200 * ms}
	loads     = []float64{0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5}
)

// demandPeak triples the demand of the first region for three seconds, to more
// than the capacity.
func demandPeak(seed uint64, n int) params {
	p := base(seed, n)
	p.warm, p.span = 3*second, 6*second
	p.faults = []fault{{from: 3500 * ms, to: 6500 * ms, region: 0, demandFactor: 3}}
	return p
}

// partitioned cuts off the last region for five seconds, longer than a TTL.
// Meanwhile the demand of the others doubles, to more than the capacity without
// the last region's share. A tenth of the first region's instances crash.
func partitioned(seed uint64, n int) params {
	p := base(seed, n)
	p.warm, p.span = 3*second, 9500*ms
	cut, healed := 3500*ms, 8500*ms
	p.faults = []fault{
		{from: cut, to: healed, region: 2, cut: true},
		{from: cut, to: healed, region: 0, demandFactor: 2},
		{from: cut, to: healed, region: 1, demandFactor: 2},
		{from: cut + second, to: healed, region: 0, crash: n / 30},
	}
	return p
}

// violation returns an error if a guarantee was violated in any run.
func (r *results) violation() error {
	for _, w := range r.all() {
		if err := w.violation(); err != nil {
			return err
		}
	}
	return nil
}

func (r *results) all() []*world {
	all := append([]*world{r.doubling, r.peak, r.partition}, r.sizes...)
	for _, more := range [][]*world{r.holds[0], r.holds[1], r.quanta, r.loads} {
		all = append(all, more...)
	}
	return all
}

func (w *world) violation() error {
	if w.m.overAdmitted+w.m.overAdmittedRegion+w.m.outlived == 0 {
		return nil
	}
	return fmt.Errorf("%d instances, capacity %d: %d permits over the capacity, %d over that of a region, %d in use when the region's lease ended",
		w.p.instances, w.p.capacity, w.m.overAdmitted, w.m.overAdmittedRegion, w.m.outlived)
}
