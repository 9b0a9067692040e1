package meter

import (
	"testing"
	"time"
)

// TestSeries_WaitsByClass checks that waits are counted by their end and their length, whether they
// were granted or not, and that they are dropped after WaitSpan.
func TestSeries_WaitsByClass(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	s := newSeries("db", "", false, now)
	if s.Waits(now) != nil {
		t.Error("waits of a series without any")
	}
	s.granted(1, 0, true, now)
	s.granted(1, 700*time.Millisecond, true, now)
	s.granted(1, time.Hour, false, now) // the server has not seen when it began
	s.gaveUp(TimedOut, time.Hour, now.Add(WaitSlot))
	s.granted(1, time.Millisecond, true, now) // the clock was set back
	all := s.Waits(now.Add(WaitSlot))
	n := len(all)
	if n != int(WaitSpan/WaitSlot) || all[n-2] != (WaitCounts{0: 1, 4: 1}) || all[n-1] != (WaitCounts{1: 1, 8: 1}) {
		t.Fatalf("%d slots that end with %v", n, all[max(0, n-2):])
	}
	later := s.Waits(now.Add(WaitSpan))
	if later[0] != (WaitCounts{1: 1, 8: 1}) || later[1] != (WaitCounts{}) || s.Waits(now.Add(2*WaitSpan)) != nil {
		t.Errorf("an hour later: %v", later[:2])
	}
	s.granted(1, 20*time.Millisecond, true, now.Add(WaitSpan+WaitSlot)) // in the place of the oldest
	if last := s.Waits(now.Add(WaitSpan + WaitSlot)); last[len(last)-1] != (WaitCounts{2: 1}) || last[0] != (WaitCounts{}) {
		t.Errorf("%v", last)
	}
	for range 70_000 {
		s.granted(1, 0, true, now.Add(3*WaitSpan))
	}
	if last := s.Waits(now.Add(3 * WaitSpan)); last[len(last)-1][0] != 65_535 {
		t.Errorf("%d after an overflow", last[len(last)-1][0])
	}
}
