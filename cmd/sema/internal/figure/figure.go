// Package figure formats numbers for users: bars, counts and durations.
package figure

import (
	"fmt"
	"strings"
	"time"
)

// Bar returns a bar that is filled to a fraction, in eighths of a column. rest is the number of
// empty columns.
func Bar(part float64, width int) (filled string, rest int) {
	eighths := max(0, min(width*8, int(part*float64(width)*8+0.5)))
	filled = strings.Repeat("█", eighths/8)
	if more := eighths % 8; more > 0 {
		filled += string([]rune("▏▎▍▌▋▊▉")[more-1])
	}
	return filled, width - (eighths+7)/8
}

// Grouped formats a number with commas: 12,345.
func Grouped(n int64) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// Count formats a number with its noun: "1 permit", "12,345 permits".
func Count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%s %ss", Grouped(n), what)
}

// Short rounds a duration to three digits.
func Short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d.Abs()/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
