package dashboard

import (
	"strings"
	"testing"
	"time"
)

// TestHeatMap_Cells checks the cells of a heat map: their places, intensities and counts, that slots
// are added up in long ranges, and that the range is not longer than what is known.
func TestHeatMap_Cells(t *testing.T) {
	t.Parallel()
	counts := make([][]int, 120)
	for i := range counts {
		counts[i] = make([]int, 3)
	}
	counts[118][0], counts[119][0], counts[119][2] = 500, 1000, 1
	w := Waits{Classes: []time.Duration{time.Millisecond, time.Second}, Slot: 30 * time.Second, Counts: counts, At: time.Unix(1_800_000_010, 0)}
	m := newHeatMap(w, 15*time.Minute)
	if m.Columns != 30 || m.Span != 15*time.Minute || m.Cells != "28.2.500;29.2.1,000;29.0.1;" || m.To != 1_800_000_030_000 {
		t.Errorf("%+v", m)
	}
	if m.Levels[0] != "M580 0h19v13H580z" || !strings.Contains(m.Levels[4], "M580 28h") || m.Levels[2] != "" {
		t.Errorf("%q", m.Levels)
	}
	if m.Text != "Waits of the last 15m: 1,501, the longest took ≥ 1s" || m.Rows[0].Label != "≥ 1s" || m.Rows[2].Label != "< 1ms" {
		t.Errorf("%+v", m)
	}
	for _, span := range []time.Duration{time.Hour, 24 * time.Hour} {
		if m := newHeatMap(w, span); m.Columns != 60 || m.Span != time.Hour || m.Cells != "59.2.1,500;59.0.1;" {
			t.Errorf("%+v", m)
		}
	}
	if newHeatMap(Waits{}, time.Hour) != nil {
		t.Error("a heat map of nothing")
	}
}

func TestHeatLevel_IsLogarithmic(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]int{{1, 1, 0}, {1, 10_000, 0}, {2, 10_000, 1}, {10, 10_000, 1}, {11, 10_000, 2}, {9_999, 10_000, 4}, {10_000, 10_000, 4}, {2, 2, 4}} {
		if got := heatLevel(c[0], c[1]); got != c[2] {
			t.Errorf("%d of %d: %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
