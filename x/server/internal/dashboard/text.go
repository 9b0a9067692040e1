package dashboard

import (
	"fmt"
	"strconv"
	"time"
)

// age formats a duration in its two largest units.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "0s"
	case d < time.Second && d > 0:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return twoUnits(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return twoUnits(d, time.Hour, "h", time.Minute, "m")
	}
	return twoUnits(d, day, "d", time.Hour, "h")
}

// Brief formats a measured duration with two or three digits.
func Brief(d time.Duration) string {
	switch {
	case d < 50*time.Microsecond:
		return "<0.1ms"
	case d < time.Millisecond:
		return fmt.Sprintf("%.1fms", d.Seconds()*1000)
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return age(d)
}

// perSecond formats a rate.
func perSecond(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 9.95:
		return fmt.Sprintf("%.1f", v)
	}
	return count(int64(v + 0.5))
}

// shownAge truncates a duration to what age shows.
func shownAge(d time.Duration) time.Duration {
	switch {
	case d >= 24*time.Hour:
		return d.Truncate(time.Hour)
	case d >= time.Hour:
		return d.Truncate(time.Minute)
	}
	return d.Truncate(time.Second)
}

func twoUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d%s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d%s", rest, smallName)
	}
	return text
}

// count formats a number with thousands separators.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	end := 0
	if n < 0 {
		end = 1
	}
	for i := len(digits) - 3; i > end; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func permits(n int64) string { return plural(n, "1 permit", count(n)+" permits") }

func plural(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// rise returns the time in which a capacity rises by a number of permits.
func rise(by, aSecond int64) time.Duration {
	return time.Duration(min((by-1)/aSecond+1, int64(1)<<32)) * time.Second
}
