package rate

import (
	"math/rand/v2"
	"testing"
)

// A history is what a bucket was asked for. Its replay is the definition of an exact
// refund: the state as if each grant had cost from the start what it was settled to.
type history struct {
	n, burst int64
	grants   []grant
}

type grant struct {
	id     uint64
	at     int64
	weight int64
}

// free returns the permits of a bucket with this history.
func (h *history) free(now int64) int64 {
	free, at := h.burst, int64(0)
	for _, g := range h.grants {
		free = min(h.burst, free+(g.at-at)*h.n) - g.weight
		at = g.at
	}
	return min(h.burst, free+(now-at)*h.n)
}

// TestBucket_RefundsAreExact settles random grants of random histories. A period of 1 ns
// keeps fractions out of the comparison.
func TestBucket_RefundsAreExact(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		h := history{n: 1 + r.Int64N(3), burst: 1 + r.Int64N(20)}
		b := bucket{n: h.n, period: 1, burst: h.burst, free: h.burst}
		now := int64(0)
		for range 60 {
			now += r.Int64N(6)
			b.advance(now)
			switch r.IntN(3) {
			case 0, 1:
				if n := 1 + r.Int64N(h.burst); n <= b.free {
					h.grants = append(h.grants, grant{b.take(n), now, n})
				}
			case 2:
				if len(h.grants) == 0 {
					continue
				}
				g := &h.grants[r.IntN(len(h.grants))]
				cost := r.Int64N(g.weight + 1)
				if b.settleOnce(g.id) {
					b.refund(g.id, g.weight-cost)
					g.weight = cost
				}
			}
			if want := h.free(now); b.free != want {
				t.Fatalf("seed %d: %d free, want %d; burst %d, %d per ns: %v", seed, b.free, want, h.burst, h.n, h.grants)
			}
		}
	}
}

// TestBucket_MemoryIsBounded uses a bucket that is never full.
func TestBucket_MemoryIsBounded(t *testing.T) {
	t.Parallel()
	const burst = 1 << 20
	b := bucket{n: 1, period: 1, burst: burst, free: burst}
	for now := range int64(300_000) {
		b.advance(now)
		id := b.take(3)
		if b.settleOnce(id) {
			b.refund(id, 1)
		}
		if len(b.deficits) > maxDeficits || len(b.settled) > maxSettled || len(b.before) > maxSettled {
			t.Fatalf("%d deficits, %d and %d settled", len(b.deficits), len(b.settled), len(b.before))
		}
	}
	if b.free <= 0 || b.free > burst {
		t.Errorf("%d free", b.free)
	}
}

// TestBucket_RefundsHoweverManyGrantsCameSince refunds a grant after more grants than the
// list of deficits has entries: a request may wait elsewhere while many others pass.
func TestBucket_RefundsHoweverManyGrantsCameSince(t *testing.T) {
	t.Parallel()
	const burst = 1 << 40
	b := bucket{n: 1, period: 1 << 62, burst: burst, free: burst}
	b.take(100)
	var slow []uint64
	for i := range 100 * maxDeficits {
		if id := b.take(9); i%1000 == 0 {
			slow = append(slow, id)
		}
	}
	before := b.free
	for _, id := range slow {
		if !b.settleOnce(id) || !b.refund(id, 9) {
			t.Fatalf("grant %d was not refunded", id)
		}
	}
	if got, want := b.free-before, int64(9*len(slow)); got != want {
		t.Errorf("%d refunded, want %d", got, want)
	}
}

// TestBucket_MergedDeficitsNeverRefundTooMuch compares refunds of random histories that are
// longer than the list of deficits with their replay.
func TestBucket_MergedDeficitsNeverRefundTooMuch(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 2))
		h := history{n: 1, burst: 1 << 30}
		b := bucket{n: 1, period: 1, burst: h.burst, free: h.burst}
		now := int64(0)
		for range 4 * maxDeficits {
			now += r.Int64N(100)
			b.advance(now)
			n := 1 + r.Int64N(1000)
			h.grants = append(h.grants, grant{b.take(n), now, n})
		}
		for range 20 {
			g := &h.grants[r.IntN(len(h.grants))]
			if b.settleOnce(g.id) {
				b.refund(g.id, g.weight)
				g.weight = 0
			}
			want := h.free(now)
			if b.free > want {
				t.Fatalf("seed %d: %d free, more than the %d of the replay", seed, b.free, want)
			}
			if lost, most := want-b.free, int64(20*1000/16); lost > most {
				t.Fatalf("seed %d: refunds lost %d permits, want at most %d", seed, lost, most)
			}
		}
	}
}

// TestBucket_RefundsOnceAfterItForgets settles so many grants that the first is forgotten.
func TestBucket_RefundsOnceAfterItForgets(t *testing.T) {
	t.Parallel()
	b := bucket{n: 1, period: 1, burst: 1 << 40, free: 1 << 40}
	settle := func(id uint64) bool { return b.settleOnce(id) && b.refund(id, 1) }
	b.take(1000) // the bucket is never full
	first := b.take(2)
	if !settle(first) || settle(first) {
		t.Error("a grant was not refunded exactly once")
	}
	var recent uint64
	for i := range 3 * maxSettled {
		b.advance(b.at + 64) // what was taken returns, so that the list of deficits stays short
		for range 63 {       // so that no two ids that are settled share 64 bits
			b.take(1)
		}
		id := b.take(2)
		settle(id)
		if i == 3*maxSettled-64 {
			recent = id
		}
	}
	if settle(first) {
		t.Error("a grant that was forgotten was refunded again")
	}
	if settle(recent) {
		t.Error("one of the latest grants was refunded again")
	}
}

func TestBucket_ClockThatStepsBackGrantsNothing(t *testing.T) {
	t.Parallel()
	b := bucket{n: 1, period: 1, burst: 5, free: 0, at: 1000}
	b.advance(10)
	if b.free != 0 || b.at != 1000 {
		t.Errorf("%d free at %d", b.free, b.at)
	}
	b.advance(1002)
	if b.free != 2 {
		t.Errorf("%d free, want 2", b.free)
	}
}

func TestBucket_LargeNumbers(t *testing.T) {
	t.Parallel()
	const large = 1 << 60
	b := bucket{n: large, period: large, burst: large, free: 0}
	b.advance(large)
	if b.free != large {
		t.Errorf("%d free, want %d", b.free, int64(large))
	}
	b.free = -large
	if d := b.until(large); d != 2*large {
		t.Errorf("until %d, want %d", d, int64(2*large))
	}
}
