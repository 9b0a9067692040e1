package admit

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/sema-go/sema"
)

// StatusOf returns the HTTP status of a rejection: 429 if the client has sent too much, 503
// if the service cannot serve it now.
func StatusOf(why Reason) int {
	switch why {
	case ReasonRate, ReasonClassRate, ReasonBudget:
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// Reject responds to a request that was not admitted: with 429 or 503, the headers of
// [SetRetryAfter], and a problem document (RFC 9457). An error that is no [Rejection], such
// as that of a semaphore, is 503 too, except that ErrInvalid is 500, and that a request whose
// context was cancelled is 499: its client is gone, and the status is for logs.
func Reject(w http.ResponseWriter, r *http.Request, err error) { rejectAs(w, r, err, StatusOf) }

func rejectAs(w http.ResponseWriter, r *http.Request, err error, statusOf func(Reason) int) {
	p := problem{Type: "about:blank", Status: http.StatusServiceUnavailable, Detail: "the service cannot process the request now"}
	rejection := RejectionOf(err)
	switch {
	case rejection != nil:
		p.Status, p.Reason = statusOf(rejection.Reason), rejection.Reason.String()
		p.Detail = rejection.Err.Error()          // without names: they are of no concern to clients
		w.Header().Set("X-Shed-Reason", p.Reason) // whatever the status is
	case errors.Is(err, sema.ErrInvalid):
		p.Status, p.Detail = http.StatusInternalServerError, "the request could not be classified"
	case r != nil && r.Context().Err() == context.Canceled && errors.Is(err, context.Cause(r.Context())):
		p.Status = statusClientClosed
	}
	p.Title = http.StatusText(p.Status)
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		p.RetryAfter = SetRetryAfter(w.Header(), err, AfterOf(err))
		p.Reason = w.Header().Get("X-Shed-Reason")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	for _, stale := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} { // of the response that is not sent
		w.Header().Del(stale)
	}
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}

// statusClientClosed is what servers log for a client that went away; it receives nothing.
const statusClientClosed = 499

// A problem is a problem document with what a client needs to retry.
type problem struct {
	Type       string `json:"type"`
	Title      string `json:"title,omitempty"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Reason     string `json:"reason,omitempty"`
	RetryAfter int    `json:"retry_after,omitempty"` // seconds
}

// SetRetryAfter sets the headers of a response that rejects a request because of err:
// Retry-After, by [RetryAfter] of the given time, and X-Shed-Reason, which is [sema.Reason]
// of err. It returns the seconds of Retry-After. [Reject] calls it. A service that writes its
// own response calls it with [AfterOf], or with a better estimate.
func SetRetryAfter(h http.Header, err error, after time.Duration) (seconds int) {
	seconds = RetryAfter(after)
	h.Set("Retry-After", strconv.Itoa(seconds))
	h.Del("X-Shed-Reason")
	if r := RejectionOf(err); r != nil {
		h.Set("X-Shed-Reason", r.Reason.String())
	} else if reason := sema.Reason(err); reason != "" && reason != "other" {
		h.Set("X-Shed-Reason", reason)
	}
	return seconds
}

// AfterOf returns how long to wait before a retry makes sense: the RetryAfter of a
// [Rejection], or the After of a [sema.Error]. 0: err does not contain it.
func AfterOf(err error) time.Duration {
	if r := RejectionOf(err); r != nil {
		return r.RetryAfter
	}
	var fault *sema.Error
	if errors.As(err, &fault) {
		return fault.After
	}
	return 0
}

// RetryAfter returns d in whole seconds for the header Retry-After: at least 1, rounded up,
// and up to a quarter and a second more at random, so that the clients that were rejected
// together do not return together. It counts a day at most.
func RetryAfter(d time.Duration) int {
	const most = 24 * time.Hour
	seconds := max(1, (min(d, most)+time.Second-1)/time.Second)
	return int(seconds) + rand.IntN(int(seconds)/4+2)
}
