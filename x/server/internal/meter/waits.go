package meter

import (
	"math"
	"time"
)

// WaitSlot is the interval in which waits are counted for [Series.Waits]. They are kept for WaitSpan.
const (
	WaitSlot = 30 * time.Second
	WaitSpan = time.Hour
)

const waitSlots = int(WaitSpan / WaitSlot)

// WaitClasses are the upper bounds of the classes of waits. Longer waits are in one more class.
var WaitClasses = [...]time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute,
}

// WaitCounts are the numbers of waits by class. A number stops at 65,535: an hour of them takes
// 2 KiB a semaphore.
type WaitCounts [len(WaitClasses) + 1]uint16

// recentWaits is a ring of counts, one for each WaitSlot.
type recentWaits struct {
	newest int64 // number of the newest slot: time / WaitSlot
	counts [waitSlots]WaitCounts
}

func waitSlotOf(now time.Time) int64 { return now.UnixNano() / int64(WaitSlot) }

// add counts a wait that ended now. A time before the newest slot, of a clock that was set back,
// counts in the newest slot.
func (r *recentWaits) add(waited time.Duration, now time.Time) {
	slot := max(waitSlotOf(now), r.newest)
	for empty := max(r.newest+1, slot-int64(waitSlots)+1); empty <= slot; empty++ {
		r.counts[empty%int64(waitSlots)] = WaitCounts{}
	}
	r.newest = slot
	class := 0
	for class < len(WaitClasses) && waited >= WaitClasses[class] {
		class++
	}
	if n := &r.counts[slot%int64(waitSlots)][class]; *n < math.MaxUint16 {
		*n++
	}
}

// Waits returns the waits that ended in the last WaitSpan, granted or not: one element for each
// WaitSlot, the last one of the present slot. It returns nil if none ended.
func (s *Series) Waits(now time.Time) []WaitCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := waitSlotOf(now)
	r := s.recent
	if r == nil || r.newest <= last-int64(waitSlots) {
		return nil
	}
	all := make([]WaitCounts, waitSlots)
	for i := range all {
		slot := last - int64(waitSlots) + 1 + int64(i)
		if slot <= r.newest && slot > r.newest-int64(waitSlots) {
			all[i] = r.counts[slot%int64(waitSlots)]
		}
	}
	return all
}

// waitedLocked records the end of a wait. The lock of the series is held.
func (s *Series) waitedLocked(waited time.Duration, now time.Time) {
	if s.recent == nil {
		s.recent = &recentWaits{}
	}
	s.recent.add(waited, now)
}
