package admit

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
)

// Limits are what a response states about the limits of an upstream.
type Limits struct {
	RetryAfter time.Duration // 0: not stated
	Requests   Remaining
	Tokens     Remaining
}

// Remaining is how much of a limit is left.
type Remaining struct {
	Known bool
	N     int64
	Reset time.Duration // after which more is available; 0: not stated
}

// LimitsOf returns what the headers of a response state:
//
//   - Retry-After in seconds or as a date, retry-after-ms
//   - x-ratelimit-remaining-requests, x-ratelimit-reset-requests, and the same for tokens
//   - anthropic-ratelimit-requests-remaining, -reset, and the same for tokens, input-tokens and
//     output-tokens
//   - x-ratelimit-remaining and x-ratelimit-reset, ratelimit-remaining and ratelimit-reset, for
//     requests
//
// A reset may be seconds ("7.66"), a duration ("6m0s", "120ms"), a Unix time in seconds or
// milliseconds, or a date (RFC 3339 or that of HTTP). If a response states several limits of a
// kind, the one with the least left counts. What cannot be parsed is ignored.
func LimitsOf(h http.Header) Limits {
	return limitsAt(h, time.Now())
}

func limitsAt(h http.Header, now time.Time) Limits {
	return Limits{
		RetryAfter: retryAfterOf(h, now),
		Requests:   leastOf(h, now, "x-ratelimit-%-requests", "anthropic-ratelimit-requests-%", "x-ratelimit-%", "ratelimit-%"),
		Tokens: leastOf(h, now, "x-ratelimit-%-tokens", "anthropic-ratelimit-tokens-%",
			"anthropic-ratelimit-input-tokens-%", "anthropic-ratelimit-output-tokens-%"),
	}
}

// leastOf returns the limit with the least left among those with these names of headers, in
// which % stands for "remaining" and "reset".
func leastOf(h http.Header, now time.Time, names ...string) (least Remaining) {
	for _, name := range names {
		n, err := strconv.ParseInt(strings.TrimSpace(h.Get(strings.Replace(name, "%", "remaining", 1))), 10, 64)
		if err != nil {
			continue
		}
		reset, _ := until(h.Get(strings.Replace(name, "%", "reset", 1)), now)
		if found := (Remaining{true, n, reset}); !least.Known || n < least.N || n == least.N && reset > least.Reset {
			least = found
		}
	}
	return least
}

// retryAfterOf returns how long an upstream demands to wait; 0: it does not.
func retryAfterOf(h http.Header, now time.Time) time.Duration {
	for _, name := range []string{"retry-after-ms", "x-ms-retry-after-ms"} {
		if ms, err := strconv.ParseFloat(h.Get(name), 64); err == nil && ms > 0 {
			return seconds(ms / 1000)
		}
	}
	d, _ := until(h.Get("Retry-After"), now)
	return d
}

// Numbers from unixSeconds on are Unix times, and from unixMillis on Unix times in
// milliseconds: as numbers of seconds they would be thirty years.
const (
	unixSeconds = 1e9
	unixMillis  = 1e12
)

// until returns the time until a point in time that a header states, at least 0.
func until(text string, now time.Time) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(n) {
		switch {
		case n >= unixMillis:
			return max(0, seconds(n/1000-float64(now.UnixMilli())/1000)), true
		case n >= unixSeconds:
			return max(0, seconds(n-float64(now.UnixMilli())/1000)), true
		}
		return max(0, seconds(n)), true
	}
	if d, err := time.ParseDuration(text); err == nil {
		return max(0, d), true
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return max(0, at.Sub(now)), true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now)), true
	}
	return 0, false
}

// seconds returns a number of seconds, rounded up, so that no wait is too short.
func seconds(n float64) time.Duration {
	if n >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(math.Ceil(n*1e6) * 1e3)
}

// maxPause bounds what one response can do to a rate.
const maxPause = time.Hour

// Obey pauses the rates of the controller as a response of an upstream demands, for up to an
// hour: [HTTP.Transport] calls it for each response.
//
//   - A Retry-After with a status of 429, 503 or 504 pauses Rate.
//   - No request remaining pauses Rate until the reset.
//   - Fewer tokens remaining than the request of the response was expected to cost pause Budget
//     until the reset.
//
// If only one of Rate and Budget is configured, that one is paused. They need a method
// PauseUntil(time.Time): those of packages rate and fleet have one, and the latter pauses the
// fleet. A pause is never shortened by a later response.
func (c *Controller) Obey(resp *http.Response) {
	if c.rate.Limiter == nil && c.budget.Limiter == nil {
		return
	}
	limits := LimitsOf(resp.Header)
	if resultOfStatus(resp.StatusCode) == Dropped {
		c.pauses.rate.extend(limits.RetryAfter, c.rate, c.budget)
	}
	if limits.Requests.Known && limits.Requests.N <= 0 {
		c.pauses.rate.extend(limits.Requests.Reset, c.rate, c.budget)
	}
	if limits.Tokens.Known && limits.Tokens.N < max(1, costOf(resp).permit.Weight()) {
		c.pauses.budget.extend(limits.Tokens.Reset, c.budget, c.rate)
	}
}

// pauses are the pauses of the rates of a controller.
type pauses struct{ rate, budget pausing }

// A pausing is until when a limiter is paused.
type pausing struct {
	mu    sync.Mutex // held while the limiter is paused, so that the latest end counts
	until time.Time
}

// extend pauses the first of the limiters that there is.
func (p *pausing) extend(d time.Duration, of ...limiter) {
	if d <= 0 {
		return
	}
	for _, l := range of {
		if l.Limiter == nil {
			continue
		}
		if pauser, ok := l.Limiter.(interface{ PauseUntil(time.Time) }); ok {
			p.mu.Lock()
			defer p.mu.Unlock()
			if end := time.Now().Add(min(d, maxPause)); end.After(p.until) {
				p.until = end
				pauser.PauseUntil(end)
			}
		}
		return
	}
}

// SettleResponse corrects what the request of a response has cost, once its usage is known:
// the body of the response of an LLM states it. The request must have been sent through
// [HTTP.Transport] with a Cost. Only the first call counts, and it may come after the body was
// closed. A negative cost is ignored.
func SettleResponse(resp *http.Response, cost int64) {
	if c := costOf(resp); c.permit.Weight() > 0 && cost >= 0 {
		c.budget.Settle(c.permit, cost)
	}
}

// A cost is what a request of a client has taken from the budget. The context of the request
// contains it.
type cost struct {
	budget rate.Limiter
	permit sema.Permit
}

type costKey struct{}

// costOf returns the cost of the request of a response, the zero cost if there is none.
func costOf(resp *http.Response) (c cost) {
	if resp != nil && resp.Request != nil {
		c, _ = resp.Request.Context().Value(costKey{}).(cost)
	}
	return c
}

// withCost returns the request with what its admission has taken from the budget.
func withCost(r *http.Request, a Admission) *http.Request {
	c := cost{}
	a.view(func(t *ticket) { c = cost{a.c.budget.Limiter, t.budget} })
	if c.permit.Weight() == 0 {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), costKey{}, c))
}
