package tune

import (
	"fmt"
	"time"
)

// short rounds a duration to three digits. The rows of "sema tune" show the same.
func short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// perSecond formats a throughput with three digits, or as a whole number with commas. The rows
// of "sema tune" show the same.
func perSecond(v float64) string {
	if v < 99.95 {
		return fmt.Sprintf("%.3g", v)
	}
	text := fmt.Sprintf("%.0f", v)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
