package rate

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/sema-go/sema"
)

// A bucket is the state of a rate: n permits return per period, up to burst. All
// arithmetic is in integers, so that the rate has no error over any time.
type bucket struct {
	n, period, burst int64
	free             int64  // permits that can be acquired; negative after a charge
	fraction         int64  // of the next permit, in units of 1/period; below period
	at               int64  // the time up to which permits have returned, in ns
	last             uint64 // id of the last grant
	deficits         []deficit
	forgotten        uint64 // grants up to this id cannot be refunded: the bucket was full since, or it forgot them
	settled, before  idSet  // grants that were settled: the latest, and those before them
}

// An idSet is a set of ids: bits of 64 neighbours by id/64, since most ids of a gate that
// settles are in it.
type idSet map[uint64]uint64

func (s idSet) has(id uint64) bool { return s[id/64]>>(id%64)&1 != 0 }
func (s idSet) add(id uint64)      { s[id/64] |= 1 << (id % 64) }

// A deficit is how many permits the bucket lacked when a grant came. The list has the
// suffix minima: ids and deficits both rise, and the first entry after an id is the least
// deficit at any grant after it.
//
// A refund uses them. Without the refunded grant the bucket would have been fuller by its
// weight ever since, except that a full bucket loses what returns. So a refund is worth
// at most the least deficit at any later grant. To refund more would admit more than
// burst + n in a period.
type deficit struct {
	id uint64
	of int64
}

// maxDeficits bounds the memory of a bucket that is never full: beyond it neighbours in the
// list are merged, see merge. maxSettled bounds the length of each idSet: beyond it the
// oldest grants are forgotten, and cannot be refunded.
const (
	maxDeficits = 1024
	maxSettled  = 4096
)

// maxDebt bounds what is charged, so that no sum overflows.
const maxDebt = sema.MaxCapacity

// advance returns the permits of the time up to now. Time that steps back changes nothing.
// A bucket that has just become full keeps the fraction of the next permit, see spill.
func (b *bucket) advance(now int64) {
	if now <= b.at {
		return
	}
	elapsed := uint64(now - b.at)
	b.at = now
	hi, lo := bits.Mul64(elapsed, uint64(b.n))
	lo, carry := bits.Add64(lo, uint64(b.fraction), 0)
	hi += carry
	if hi == 0 && lo < uint64(b.period) { // less than a permit; a division costs as much as a lock
		b.fraction = int64(lo)
		return
	}
	overHi, overLo := bits.Mul64(uint64(b.burst-b.free)+1, uint64(b.period))
	if hi > overHi || hi == overHi && lo >= overLo { // more than there is room for
		b.free, b.fraction = b.burst, 0
		return
	}
	whole, rest := bits.Div64(hi, lo, uint64(b.period)) // at most the room, so it cannot overflow
	b.free += int64(whole)
	b.fraction = int64(rest)
}

// spill drops the fraction of the next permit if the bucket is full. It is not called while
// a caller waits for a full bucket: that one ought to have been granted its permits at the
// instant at which they had returned, and the fraction has returned since.
func (b *bucket) spill() {
	if b.free == b.burst {
		b.fraction = 0
	}
}

// charge takes permits that may not be free.
func (b *bucket) charge(n int64) { b.take(min(n, b.free+maxDebt)) }

// take takes permits, which the caller has found free, and returns the id of the grant.
func (b *bucket) take(n int64) uint64 {
	b.last++
	b.note(b.last, b.burst-b.free)
	b.free -= n
	return b.last
}

// note appends the deficit at a grant.
func (b *bucket) note(id uint64, of int64) {
	for len(b.deficits) > 0 && b.deficits[len(b.deficits)-1].of >= of {
		b.deficits = b.deficits[:len(b.deficits)-1]
	}
	b.deficits = append(b.deficits, deficit{id, of})
	if of == 0 { // no earlier grant can be refunded
		b.forgotten = id - 1
		return
	}
	if len(b.deficits) > maxDeficits {
		b.merge()
	}
}

// merge merges neighbours whose deficits differ by at most a sixteenth. The lower deficit
// then counts for the grants of both, so a refund is never worth too much. It is worth too
// little, by a sixteenth at most, only if it exceeds that deficit. At most 700 entries
// remain, since a deficit has 63 bits.
func (b *bucket) merge() {
	kept := b.deficits[:1]
	for _, d := range b.deficits[1:] {
		if last := &kept[len(kept)-1]; d.of-last.of <= last.of/16 {
			last.id = d.id
		} else {
			kept = append(kept, d)
		}
	}
	b.deficits = kept
}

// refund returns up to n permits of a grant that was not needed, and reports whether the
// bucket has changed.
func (b *bucket) refund(id uint64, n int64) bool {
	if id <= b.forgotten {
		return false
	}
	i := slices.IndexFunc(b.deficits, func(d deficit) bool { return d.id > id })
	if i >= 0 {
		n = min(n, b.deficits[i].of)
		for k := i; k < len(b.deficits); k++ {
			b.deficits[k].of -= n
		}
		first := i // earlier entries that are no minima any more
		for first > 0 && b.deficits[first-1].of >= b.deficits[i].of {
			first--
		}
		b.deficits = slices.Delete(b.deficits, first, i)
	}
	b.free = min(b.burst, b.free+n)
	return n > 0
}

// settleOnce reports whether a grant is settled for the first time. A full bucket does not
// end its memory: a second charge would count then.
func (b *bucket) settleOnce(id uint64) bool {
	if b.settled.has(id) || b.before.has(id) {
		return false
	}
	if len(b.settled) >= maxSettled {
		for word := range b.before {
			b.forgotten = max(b.forgotten, word*64+63) // none is refunded again
		}
		b.before, b.settled = b.settled, nil
	}
	if b.settled == nil {
		b.settled = idSet{}
	}
	b.settled.add(id)
	return true
}

// until returns the time after which n permits are free, if none is acquired meanwhile.
func (b *bucket) until(n int64) time.Duration {
	need := n - b.free
	if need <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(need), uint64(b.period))
	lo, borrow := bits.Sub64(lo, uint64(b.fraction), 0)
	hi -= borrow
	lo, carry := bits.Add64(lo, uint64(b.n)-1, 0) // rounded up
	hi += carry
	if hi >= uint64(b.n) {
		return math.MaxInt64
	}
	whole, _ := bits.Div64(hi, lo, uint64(b.n))
	return time.Duration(min(whole, math.MaxInt64))
}

// setRate changes the rate and the burst. What has returned stays, up to the burst.
func (b *bucket) setRate(n, period, burst int64) {
	hi, lo := bits.Mul64(uint64(b.fraction), uint64(period))
	scaled, _ := bits.Div64(hi, lo, uint64(b.period)) // below period, as fraction is below b.period
	used := b.burst - b.free
	b.n, b.period, b.fraction = n, period, int64(scaled)
	b.free = min(b.free, burst)
	if used == 0 {
		b.free = burst // a full bucket stays full
	}
	if b.free == burst {
		b.fraction = 0
	}
	b.burst = burst
}
