package loadtest

import (
	"math"
	"math/bits"
	"time"
)

// A histogram counts durations in buckets whose width is a 32nd of a power of two, so results are
// at most 3 % too high. Its size does not depend on the number of durations.
type histogram struct {
	buckets [64 << precision]int64
	n       int64
	most    time.Duration
}

// precision is the number of significant bits after the first one.
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

// bucketOf returns the bucket of a duration: one bucket per value for short durations, and then 32
// for each further bit.
func bucketOf(v uint64) int {
	length := bits.Len64(v)
	if length <= precision+1 {
		return int(v)
	}
	shift := length - precision - 1
	return shift<<precision + int(v>>shift)
}

// limitOf returns the largest duration in a bucket.
func limitOf(i int) time.Duration {
	if i < 2<<precision {
		return time.Duration(i)
	}
	shift := i>>precision - 1
	first := uint64(i-shift<<precision) << shift
	return time.Duration(first + 1<<shift - 1)
}

// quantile returns an upper bound for a fraction of all durations: 0.99 for the p99.
func (h *histogram) quantile(part float64) time.Duration {
	rank, seen := max(1, int64(math.Ceil(part*float64(h.n)))), int64(0)
	for i, n := range h.buckets {
		if seen += n; seen >= rank {
			return min(limitOf(i), h.most)
		}
	}
	return h.most
}

// A band counts the durations from one round number to the next, with the precision of the
// buckets.
type band struct {
	From, To time.Duration
	Count    int64
}

// bands returns the bands from the shortest to the longest duration.
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

// rounder returns the next number in 1, 2, 5, 10, 20, 50, ….
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
