package overload

import (
	"math"
	"slices"
	"time"
)

// A Result is what a run measured.
type Result struct {
	Goodput            float64 // slot-time that served requests in time, of all slot-time
	P50, P99, P999     time.Duration
	RejectP99          time.Duration // from arrival to rejection
	Admitted, Rejected int
	InVain             float64            // fraction of the rejected requests that waited for more than 1 ms
	Jain               float64            // weighted index of backlogged classes; 0: fewer than two
	Shares             map[string]float64 // of the slot-time that was used, by class
	WideServed         float64            // fraction of the wide requests served in time
	NarrowServed       float64            // and of the others
	Overshoot          int64              // requests in flight above the cap
	Leaked             int64              // permits held when all requests have ended
	Timeline           []Bucket
}

// A Bucket is the slot-time offered and served in time by the requests that arrived in a
// bucketLength, as multiples of what the slots have in that time.
type Bucket struct{ Offered, Good float64 }

const bucketLength = 50 * time.Millisecond

func summarise(l Load, records []record) Result {
	out := Result{Timeline: make([]Bucket, l.For/bucketLength)}
	var useful time.Duration // in integers, so that equal policies have equal results
	var admitted, rejected []time.Duration
	var wide, wideGood, narrow, narrowGood float64
	for _, r := range records {
		work := float64(r.work())
		b := &out.Timeline[min(int(r.At/bucketLength), len(out.Timeline)-1)]
		b.Offered += work / float64(bucketLength*Slots)
		good := 0.0
		if r.good() {
			good = 1
			b.Good += work / float64(bucketLength*Slots)
			useful += r.within
		}
		if r.Cost > 1 {
			wide, wideGood = wide+1, wideGood+good
		} else {
			narrow, narrowGood = narrow+1, narrowGood+good
		}
		switch {
		case r.admitted:
			admitted = append(admitted, r.took)
		case !r.left:
			rejected = append(rejected, r.took)
		}
	}
	out.Goodput = float64(useful) / float64(l.For*Slots)
	out.Admitted, out.Rejected = len(admitted), len(rejected)
	out.P50, out.P99, out.P999 = quantile(admitted, 0.5), quantile(admitted, 0.99), quantile(admitted, 0.999)
	out.RejectP99 = quantile(rejected, 0.99)
	if i, _ := slices.BinarySearch(rejected, time.Millisecond); len(rejected) > 0 {
		out.InVain = 1 - float64(i)/float64(len(rejected))
	}
	if wide > 0 {
		out.WideServed, out.NarrowServed = wideGood/wide, narrowGood/narrow
	}
	if len(l.Classes) > 0 {
		out.Jain, out.Shares = fairness(l.Classes, records)
	}
	return out
}

// warmUp is left out where shares are measured.
const warmUp = time.Second

// fairness returns the weighted index of Jain, and the shares of the classes. A class counts
// in the index if it was backlogged: some of its requests were not served.
func fairness(classes []Class, records []record) (jain float64, shares map[string]float64) {
	used, offered, sum := map[string]float64{}, map[string]float64{}, 0.0
	for _, r := range records {
		if r.At < warmUp {
			continue
		}
		offered[r.Class] += float64(r.work())
		if r.admitted {
			used[r.Class] += float64(r.work())
			sum += float64(r.work())
		}
	}
	shares = map[string]float64{}
	var total, squares, n float64
	for _, c := range classes {
		shares[c.Name] = used[c.Name] / sum
		if used[c.Name] > 0.99*offered[c.Name] {
			continue
		}
		x := used[c.Name] / float64(c.Weight)
		total, squares, n = total+x, squares+x*x, n+1
	}
	if n < 2 {
		return 0, shares
	}
	return total * total / (n * squares), shares
}

// enough is the share of the possible goodput at which a service has recovered.
const enough, enoughFor = 0.95, 500 * time.Millisecond

// never is the time of what does not happen.
const never = time.Duration(math.MaxInt64)

// Recovery returns the longest recovery of all seeds.
func (x row) Recovery(after, until time.Duration) (longest time.Duration) {
	for _, r := range x.seeds {
		longest = max(longest, r.recovery(after, until))
	}
	return longest
}

// recovery returns how long after a time the goodput is again 0.95 of what is possible:
// over the 500 ms that begin then, and over all the time to until. It returns never if it
// does not happen.
func (r Result) recovery(after, until time.Duration) time.Duration {
	from, to := int(after/bucketLength), int(until/bucketLength)
	ratio := func(a, b int) float64 {
		good, offered := 0.0, 0.0
		for _, x := range r.Timeline[a:b] {
			good, offered = good+x.Good, offered+x.Offered
		}
		return good / min(float64(b-a), offered)
	}
	window := int(enoughFor / bucketLength)
	for i := from; i+window <= to; i++ {
		if ratio(i, i+window) >= enough && ratio(i, to) >= enough {
			return time.Duration(i-from) * bucketLength
		}
	}
	return never
}

// quantile returns the smallest value that at least the fraction q does not exceed.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[int(math.Ceil(q*float64(len(values))))-1]
}
