package loadtest

import (
	"math"
	"math/bits"
	"time"
)

// A histogram counts durations in buckets that are each a 32nd of a power of two
// wide, so that what it says is at most 3 % too much. It takes no memory for what
// it has counted.
type histogram struct {
	buckets [64 << precision]int64
	n       int64
	most    time.Duration
}

// precision is how many bits of a duration count besides the first.
const precision = 5

func (h *histogram) add(d time.Duration) {
	d = max(0, d)
	h.buckets[bucketOf(uint64(d))]++
	h.n++
	h.most = max(h.most, d)
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.n += other.n
	h.most = max(h.most, other.most)
}

// bucketOf numbers durations of fewer bits one by one, and then 32 for each
// further bit.
func bucketOf(v uint64) int {
	length := bits.Len64(v)
	if length <= precision+1 {
		return int(v)
	}
	shift := length - precision - 1
	return shift<<precision + int(v>>shift)
}

// limitOf is the largest that is in a bucket.
func limitOf(i int) time.Duration {
	if i < 2<<precision {
		return time.Duration(i)
	}
	shift := i>>precision - 1
	first := uint64(i-shift<<precision) << shift
	return time.Duration(first + 1<<shift - 1)
}

// quantile is what a part of all are not above: 0.99 of them for the p99.
func (h *histogram) quantile(part float64) time.Duration {
	rank, seen := max(1, int64(math.Ceil(part*float64(h.n)))), int64(0)
	for i, n := range h.buckets {
		if seen += n; seen >= rank {
			return min(limitOf(i), h.most)
		}
	}
	return h.most
}

// A band is how many there are from one round number to the next, as good as the
// buckets are.
type band struct {
	From, To time.Duration
	Count    int64
}

// bands are all from the least to the most that there is.
func (h *histogram) bands() (all []band) {
	from, to := time.Duration(0), time.Duration(1)
	n := int64(0)
	for i, more := range h.buckets {
		if more == 0 {
			continue
		}
		for limitOf(i) >= to {
			if n > 0 || len(all) > 0 {
				all = append(all, band{from, to, n})
			}
			from, to, n = to, rounder(to), 0
		}
		n += more
	}
	if n > 0 {
		all = append(all, band{from, to, n})
	}
	return all
}

// rounder is the next of 1, 2, 5, 10, 20, 50, ….
func rounder(d time.Duration) time.Duration {
	for first := d; ; first /= 10 {
		switch first {
		case 2:
			return d / 2 * 5
		case 1, 5:
			return d * 2
		}
	}
}
