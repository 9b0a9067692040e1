package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A problem is an error as RFC 9457 has it.
type problem struct {
	Type      string `json:"type,omitempty"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	Semaphore string `json:"semaphore,omitempty"`
	Capacity  int64  `json:"capacity,omitempty"`
	InUse     int64  `json:"in_use,omitempty"`

	header http.Header
}

func (p *problem) Error() string { return fmt.Sprintf("%s: %s", p.Title, p.Detail) }

// Is is for those who branch on errors of package sema.
func (p *problem) Is(target error) bool {
	switch p.Status {
	case http.StatusBadRequest:
		return target == sema.ErrInvalid
	case http.StatusUnauthorized, http.StatusForbidden:
		return target == fs.ErrPermission
	case http.StatusServiceUnavailable:
		return target == sema.ErrUnavailable
	}
	return false
}

func invalid(format string, args ...any) error {
	return &problem{Status: http.StatusBadRequest, Title: "invalid request", Detail: fmt.Sprintf(format, args...)}
}

func retryAfter(seconds int) http.Header { return http.Header{"Retry-After": {strconv.Itoa(seconds)}} }

const noSuchSemaphore = "no-such-semaphore"

// kinds are how errors are told, the first that fits.
var kinds = []struct {
	is     error
	status int
	name   string
	retry  int    // seconds; 0: do not say
	next   string // what to do, for who speaks HTTP; "": what the library says will do
}{
	{errLeaving, http.StatusServiceUnavailable, "leaving", 1, ""},
	{sema.ErrDraining, http.StatusServiceUnavailable, "draining", 10, "nobody is let in until it is resumed; ask again later"},
	{sema.ErrUnavailable, http.StatusServiceUnavailable, "engine-unavailable", 1, ""},
	{sema.ErrClosed, http.StatusServiceUnavailable, "leaving", 1, "this server is being stopped; ask again, or another one"},
	{sema.ErrQueueFull, http.StatusTooManyRequests, "queue-full", 1, "as many wait as may (max_waiters); ask again later, or shed the work"},
	{sema.ErrFull, http.StatusTooManyRequests, "full", 1, "ask with ?wait=30s to stand in line, or shed the work"},
	{sema.ErrTimeout, http.StatusTooManyRequests, "timeout", 1, "ask again, or look who holds them: GET /v1/semaphores/{name}"},
	{sema.ErrTooLarge, http.StatusUnprocessableEntity, "too-large", 0, "ask for less"},
	{sema.ErrLost, http.StatusGone, "lease-lost", 0, "stop what it was for, and ask for another one"},
	{sema.ErrInvalid, http.StatusBadRequest, "invalid", 0, ""},
	{protocol.ErrConflict, http.StatusPreconditionFailed, "changed-meanwhile", 0, ""},
	{protocol.ErrVersion, http.StatusConflict, "other-version", 0, ""},
	{errors.ErrUnsupported, http.StatusNotImplemented, "unsupported", 0, ""},
	{fs.ErrNotExist, http.StatusNotFound, noSuchSemaphore, 0, ""},
	{fs.ErrPermission, http.StatusForbidden, "not-allowed", 0, ""},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, "engine-unavailable", 1, ""},
}

// problemOf is an error as it is told.
func problemOf(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		return &problem{Status: http.StatusRequestEntityTooLarge, Title: "request too large", Detail: fmt.Sprintf("want %d bytes at most", tooLong.Limit)}
	}
	p = &problem{Status: http.StatusInternalServerError, Title: "internal error", Detail: err.Error()}
	var fault *sema.Error
	refused := errors.As(err, &fault)
	for _, k := range kinds {
		if errors.Is(err, k.is) {
			p.Status, p.Title, p.Type = k.status, k.is.Error(), "urn:sema:"+k.name
			if k.name == noSuchSemaphore {
				p.Title = "there is no such semaphore" // and not: file
			}
			if k.retry > 0 {
				p.header = retryAfter(k.retry)
			}
			if refused && k.next != "" {
				p.Detail = facts(fault) + "; " + k.next
			}
			break
		}
	}
	if refused {
		p.Semaphore, p.Capacity, p.InUse = fault.Name, fault.Capacity, fault.InUse
	}
	return p
}

// facts are those of a refusal. What the library advises is for programs.
func facts(e *sema.Error) string {
	text := fmt.Sprintf("%q: %s", e.Name, strings.TrimPrefix(e.Err.Error(), "sema: "))
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Weight > 0 && e.Capacity > 0 {
		text += fmt.Sprintf(" (%d wanted, %d of %d in use)", e.Weight, e.InUse, e.Capacity)
	}
	return text
}

// diagnose is an error as the client is told of it, unless it has gone, and has the
// log know of what should not be.
func (s *Server) diagnose(r *http.Request, err error) *problem {
	if r.Context().Err() != nil && !errors.Is(err, errLeaving) {
		return &problem{Status: statusGone, Title: "the client has gone"}
	}
	p := problemOf(err)
	if p.Status == http.StatusInternalServerError {
		s.log.Error("a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	return p
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := s.diagnose(r, err)
	for key, values := range p.header {
		w.Header()[key] = values
	}
	if p.Status == http.StatusTooManyRequests && p.Capacity > 0 {
		limits(w, p.Semaphore, p.Capacity, p.InUse)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// statusGone is what proxies log of a client that did not wait for an answer.
const statusGone = 499

// unrouted is for a path or a method that there is not.
func (s *Server) unrouted(r *http.Request) error {
	return &problem{Status: http.StatusNotFound, Title: "no such thing", Detail: fmt.Sprintf("%s %s: see /openapi.json for what there is", r.Method, r.URL.Path)}
}

func answer(w http.ResponseWriter, status int, body any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // or the client has gone
	return nil
}
