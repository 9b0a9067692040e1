package loadtest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestHistogram_BucketsAreContiguous(t *testing.T) {
	t.Parallel()
	last := -1
	for v := uint64(0); v < math.MaxInt64/2; v += 1 + v/97 {
		i := bucketOf(v)
		limit := uint64(limitOf(i))
		if i < last || limit < v || float64(limit) > float64(v)*33/32+1 || bucketOf(limit) != i || bucketOf(limit+1) != i+1 {
			t.Fatalf("%d is in bucket %d up to %d, after %d", v, i, limit, last)
		}
		last = i
	}
	if i := bucketOf(math.MaxInt64); i >= len(histogram{}.buckets) || limitOf(i) != math.MaxInt64 {
		t.Errorf("the longest is in bucket %d up to %d", i, limitOf(i))
	}
}

func TestHistogram_Quantiles(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var h, other histogram
	var all []time.Duration
	for i := range 100_000 {
		d := time.Duration(math.Exp(random.NormFloat64()*2+13) + 1)
		all = append(all, d)
		if i%3 == 0 {
			other.add(d)
		} else {
			h.add(d)
		}
	}
	h.merge(&other)
	slices.Sort(all)
	for _, part := range []float64{0.0001, 0.5, 0.9, 0.99, 0.999, 1} {
		got, want := h.quantile(part), all[int(math.Ceil(part*float64(len(all))))-1]
		if got < want || float64(got) > float64(want)*1.033 {
			t.Errorf("p%v is %v, want %v", 100*part, got, want)
		}
	}
	bands, n := h.bands(), int64(0)
	for i, b := range bands {
		if b.To != rounder(b.From) || i > 0 && b.From != bands[i-1].To {
			t.Errorf("band %d: %v", i, b)
		}
		n += b.Count
	}
	if n != int64(len(all)) || bands[len(bands)-1].To <= h.most || bands[len(bands)-1].From > h.most {
		t.Errorf("%d in %v", n, bands)
	}
}

func TestHistogram_Empty(t *testing.T) {
	t.Parallel()
	var h histogram
	if h.quantile(0.5) != 0 || h.bands() != nil {
		t.Errorf("%v, %v", h.quantile(0.5), h.bands())
	}
	h.add(0)
	h.add(-1)
	h.add(5)
	h.add(12_000)
	h.add(20_000)
	if bands := h.bands(); len(bands) != 15 || bands[0] != (band{0, 1, 2}) || bands[3] != (band{5, 10, 1}) ||
		bands[13] != (band{10_000, 20_000, 1}) || bands[14] != (band{20_000, 50_000, 1}) {
		t.Errorf("%v", bands)
	}
}
