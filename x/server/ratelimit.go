package server

import (
	"fmt"
	"math"
	"net/http"
	"time"
)

// rateLimit sets the RateLimit headers (draft-ietf-httpapi-ratelimit-headers): how many
// permits there are, and how many are free. Those of a rate have its window, and when
// none is free the time in which one returns.
func rateLimit(w http.ResponseWriter, name string, capacity, inUse int64, window time.Duration) {
	free := max(0, capacity-inUse)
	policy, now := fmt.Sprintf("%q;q=%d", name, capacity), fmt.Sprintf("%q;r=%d", name, free)
	if window > 0 {
		policy += fmt.Sprintf(";w=%d", wholeSeconds(window))
		if free == 0 {
			now += fmt.Sprintf(";t=%d", wholeSeconds(returnTime(window, 1, capacity)))
		}
	}
	w.Header().Set("RateLimit-Policy", policy)
	w.Header().Set("RateLimit", now)
}

// returnTime returns in which time that many permits of a rate return, on average. When
// exactly depends on when they were granted, which the store keeps to itself.
func returnTime(window time.Duration, weight, capacity int64) time.Duration {
	if weight >= capacity {
		return window
	}
	return time.Duration(float64(window) * float64(weight) / float64(capacity))
}

// wholeSeconds rounds up, to 1 at least.
func wholeSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
