package figure

import (
	"strings"
	"testing"
	"time"
)

func TestBar_Width(t *testing.T) {
	t.Parallel()
	last := 0
	for part := -0.5; part < 1.5; part += 0.001 {
		filled, rest := Bar(part, 10)
		if n := len([]rune(filled)); n+rest != 10 || n < last {
			t.Fatalf("%v: %q and %d", part, filled, rest)
		}
		last = len([]rune(filled))
	}
	for part, want := range map[float64]string{0: "", 0.5: "█████", 0.55: "█████▌", 1: strings.Repeat("█", 10), 7: strings.Repeat("█", 10)} {
		if got, _ := Bar(part, 10); got != want {
			t.Errorf("%v: %q, want %q", part, got, want)
		}
	}
}

func TestFigure_Numbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 permits", 1: "1 permit", 999: "999 permits", 1000: "1,000 permits", 1234567: "1,234,567 permits"} {
		if got := Count(n, "permit"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0s", 12345: "12.3µs", 999_999: "1ms", -1_234_567: "-1.23ms", 61_234 * time.Millisecond: "1m1.2s", time.Hour: "1h0m0s"} {
		if got := Short(d).String(); got != want {
			t.Errorf("%v: %s, want %s", int64(d), got, want)
		}
	}
}
