package meter

import (
	"math"
	"time"
)

// Window is the period of percentiles and rates. It is divided into slots: what is reported
// covers at least Window, and at most a slot more.
const Window = 5 * time.Minute

const (
	slotSpan  = 30 * time.Second
	slotCount = int(Window/slotSpan) + 1
)

// A window is a ring of slots, one for each slotSpan of the last minutes.
type window struct {
	slots [slotCount]*slot // nil: unused
}

// A slot contains what happened in one slotSpan.
type slot struct {
	number                  int64 // time / slotSpan
	arrivals                uint64
	grants                  uint64
	rejected                uint64  // of the arrivals, without having waited
	weight                  float64 // of the grants
	heldWeight, endedWeight float64 // permit-seconds and weight of the leases that ended
	wait, hold              distribution
}

// slot returns the slot of a time, emptied if it was one of the past.
func (w *window) slot(now time.Time) *slot {
	number := now.UnixNano() / int64(slotSpan)
	p := &w.slots[number%int64(slotCount)]
	switch {
	case *p == nil:
		*p = &slot{number: number}
	case (*p).number != number:
		**p = slot{number: number}
	}
	return *p
}

// Figures are what was measured of a semaphore in the last [Window].
type Figures struct {
	Period           time.Duration // less than Window if the semaphore is measured for less
	Arrivals, Grants float64       // per second; arrivals include acquires that were not granted
	Rejected         float64       // arrivals per second that were rejected without a wait
	Demand           float64       // permits granted per second
	Held             float64       // mean of hold in seconds, weighted by permits
	Waits, Holds     uint64        // number of waits and holds behind the percentiles
	WaitP50, WaitP99 time.Duration
	HoldP50, HoldP99 time.Duration
}

// Figures returns what was measured in the last [Window].
func (s *Series) Figures(now time.Time) Figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	var (
		wait, hold                      distribution
		arrivals, grants, rejected      uint64
		weight, heldWeight, endedWeight float64
	)
	last := now.UnixNano() / int64(slotSpan)
	for _, one := range s.window.slots {
		if one == nil || one.number <= last-int64(slotCount) || one.number > last {
			continue
		}
		wait.merge(&one.wait)
		hold.merge(&one.hold)
		arrivals += one.arrivals
		grants += one.grants
		rejected += one.rejected
		weight += one.weight
		heldWeight += one.heldWeight
		endedWeight += one.endedWeight
	}
	begin := time.Unix(0, (last-int64(slotCount)+1)*int64(slotSpan))
	f := Figures{Period: now.Sub(begin)}
	if s.began.After(begin) {
		f.Period = max(time.Second, now.Sub(s.began))
	}
	seconds := f.Period.Seconds()
	f.Arrivals, f.Grants, f.Demand = float64(arrivals)/seconds, float64(grants)/seconds, weight/seconds
	f.Rejected = float64(rejected) / seconds
	if endedWeight > 0 {
		f.Held = heldWeight / endedWeight
	}
	f.Waits, f.WaitP50, f.WaitP99 = wait.count, wait.quantile(0.5), wait.quantile(0.99)
	f.Holds, f.HoldP50, f.HoldP99 = hold.count, hold.quantile(0.5), hold.quantile(0.99)
	return f
}

// A distribution is a histogram with exponential buckets: each is 2^(1/4) wide, so a percentile
// is off by 9 % at most. It covers 100 µs to 40 h; shorter durations count as 0.
type distribution struct {
	count   uint64
	buckets *[bucketCount]uint32 // nil: empty
}

const (
	shortest    = 100 * time.Microsecond
	perOctave   = 4
	bucketCount = 122
)

func bucketOf(d time.Duration) int {
	if d < shortest {
		return 0
	}
	return min(bucketCount-1, 1+int(perOctave*math.Log2(float64(d)/float64(shortest))))
}

// middleOf returns the duration in the middle of a bucket, by its logarithm.
func middleOf(bucket int) time.Duration {
	if bucket == 0 {
		return 0
	}
	return time.Duration(float64(shortest) * math.Exp2((float64(bucket)-0.5)/perOctave))
}

func (d *distribution) add(t time.Duration) {
	if d.buckets == nil {
		d.buckets = new([bucketCount]uint32)
	}
	d.buckets[bucketOf(t)]++
	d.count++
}

func (d *distribution) merge(o *distribution) {
	if o.buckets == nil {
		return
	}
	if d.buckets == nil {
		d.buckets = new([bucketCount]uint32)
	}
	for i, n := range o.buckets {
		d.buckets[i] += n
	}
	d.count += o.count
}

// quantile returns a percentile; 0 if the distribution is empty.
func (d *distribution) quantile(q float64) time.Duration {
	if d.count == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(d.count)))
	var seen uint64
	for i, n := range d.buckets {
		if seen += uint64(n); seen >= rank {
			return middleOf(i)
		}
	}
	return middleOf(bucketCount - 1)
}
