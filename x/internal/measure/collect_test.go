package measure

import "testing"

func TestAtOnce_NeverDecreases(t *testing.T) {
	t.Parallel()
	var a atOnce
	for _, step := range []struct{ granted, waited, want int64 }{
		{10, 0, 10},
		{12, 0, 12}, // of which two have waited, and are not recorded yet
		{12, 2, 12}, // now they are
		{13, 2, 12}, // the next one makes up for one of them
		{15, 2, 13}, // and the next for the other
		{15, 4, 13}, // recorded before they are counted as granted
		{17, 4, 13}, // and counted now
		{5, 4, 18},  // another gate of the same name
		{20, 10, 27},
	} {
		if got := a.update(step.granted, step.waited); got != step.want {
			t.Fatalf("%d granted, %d waited: %d at once, want %d", step.granted, step.waited, got, step.want)
		}
	}
}
