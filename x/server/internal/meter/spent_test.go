package meter

import (
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// TestSeries_NextOfARate checks when the first permit of a window becomes free, which is never shown
// too early, and at most a 64th of the window too late.
func TestSeries_NextOfARate(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 1)
	s := newSeries("api", false, now)
	if _, _, ok := s.Next(now); ok {
		t.Error("a time although nothing was granted")
	}
	const window = 64 * time.Second
	rate := protocol.Config{Kind: protocol.Rate, Window: protocol.Micros(window / time.Microsecond)}
	next := func(at time.Duration, least time.Duration, weight int64) {
		t.Helper()
		in, sum, ok := s.Next(now.Add(at))
		if !ok || in < least || in > least+time.Second || sum != weight {
			t.Errorf("after %v: in %v with %d, %t; want %v with %d", at, in, sum, ok, least, weight)
		}
	}
	s.spend(rate, 3, now)
	next(0, window, 3)
	s.spend(rate, 2, now.Add(20*time.Second))
	next(20*time.Second, 44*time.Second, 5)
	next(60*time.Second, 4*time.Second, 5)
	next(66*time.Second, 18*time.Second, 2)
	if _, _, ok := s.Next(now.Add(90 * time.Second)); ok {
		t.Error("a permit is spent beyond its window")
	}
	rate.Window /= 64 // it was deleted, and created again
	s.spend(rate, 1, now.Add(91*time.Second))
	if in, sum, _ := s.Next(now.Add(91 * time.Second)); in > 2*time.Second || sum != 1 {
		t.Errorf("in %v with %d", in, sum)
	}
}
