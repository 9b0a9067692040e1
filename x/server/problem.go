package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
)

// A problem is an error as defined by RFC 9457. A problem without a Type gets the type and
// title for its status.
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	Semaphore string `json:"semaphore,omitempty"`
	Capacity  int64  `json:"capacity,omitempty"`
	InUse     int64  `json:"in_use,omitempty"`
	Retry     int    `json:"retry_after,omitempty"` // seconds; also in the header Retry-After, which batch items do not have

	after  time.Duration // for Retry-After, before jitter; 0: unknown
	header http.Header
	window time.Duration // of a rate; 0: not a rate
}

func (p *problem) Error() string { return fmt.Sprintf("%s: %s", p.Title, p.Detail) }

// Is maps the problem's status to the errors of package sema and other packages.
func (p *problem) Is(target error) bool {
	switch p.Status {
	case http.StatusBadRequest:
		return target == sema.ErrInvalid
	case http.StatusUnauthorized, http.StatusForbidden:
		return target == fs.ErrPermission
	case http.StatusNotFound:
		return target == fs.ErrNotExist
	case http.StatusPreconditionFailed:
		return target == protocol.ErrConflict
	case http.StatusServiceUnavailable:
		return target == sema.ErrUnavailable
	}
	return false
}

// newProblem returns a problem of a type.
func newProblem(k *problemKind, format string, args ...any) *problem {
	return &problem{Type: problemPath + k.name, Title: k.title, Status: k.status, Detail: fmt.Sprintf(format, args...), after: k.retry}
}

// retriable returns a copy of a problem with the headers that [admit.SetRetryAfter] sets, or
// the problem itself if a retry makes no sense.
func (p *problem) retriable(err error) *problem {
	if p.Status != tooMany && p.Status != http.StatusServiceUnavailable {
		return p
	}
	q := *p
	if q.header = p.header.Clone(); q.header == nil {
		q.header = http.Header{}
	}
	q.Retry = admit.SetRetryAfter(q.header, err, p.after)
	return &q
}

const tooMany = http.StatusTooManyRequests

func invalid(format string, args ...any) error { return newProblem(kindInvalid, format, args...) }

// problemOf converts an error for clients, in the API's terms.
func (s *service) problemOf(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p.typed().retriable(err)
	}
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		return newProblem(kindTooLong, "the body is larger than %d bytes, the limit of this server", tooLong.Limit)
	}
	kind := kindOf(err)
	var fault *sema.Error
	if errors.As(err, &fault) && fault.After > 0 && kind == kindStore {
		kind = kindUndecided
	}
	p = newProblem(kind, "%s", kind.detail)
	if fault != nil {
		p.Semaphore, p.Capacity, p.InUse = fault.Name, fault.Capacity, fault.InUse
		if kind.detail == "" {
			p.Detail = facts(fault)
		}
	} else if kind == kindNoSemaphore {
		p.Detail = "no such semaphore"
	} else if kind.detail == "" {
		p.Detail = strings.TrimPrefix(err.Error(), sema.ErrInvalid.Error()+": ")
	}
	var rate *leasing.RateError
	if errors.As(err, &rate) && kind.status == tooMany {
		p.window = rate.Window
	}
	p.after = cmp.Or(s.retryTime(kind, err), kind.retry)
	if kind.appends {
		p.Detail += "; " + kind.advice
	}
	return p.retriable(err)
}

// typed returns a copy of a problem with the type and title of its status, or the problem
// itself if it has a type. It does not modify the problem, which may be shared.
func (p *problem) typed() *problem {
	if p.Type != "" {
		return p
	}
	q := *p
	q.Type, q.Title = "about:blank", http.StatusText(p.Status)
	if k := kindByStatus[p.Status]; k != nil {
		q.Type, q.Title = problemPath+k.name, k.title
	}
	return &q
}

// facts returns the facts of an error without the library's hints, which are for Go code.
func facts(e *sema.Error) string {
	text := ""
	if e.Name != "" {
		text = fmt.Sprintf("%q: ", e.Name)
	}
	if e.Err != sema.ErrInvalid || e.Detail == "" {
		text += strings.TrimPrefix(e.Err.Error(), "sema: ")
		if e.Detail != "" {
			text += ": "
		}
	}
	text += e.Detail
	if e.Weight > 0 && e.Capacity > 0 {
		text += fmt.Sprintf(" (%d wanted, %d of %d in use)", e.Weight, e.InUse, e.Capacity)
	}
	return text
}

// diagnose converts an error for the client, unless the client has disconnected, and logs
// what an operator has to know.
func (s *service) diagnose(r *http.Request, err error) *problem {
	var known *problem
	if r.Context().Err() != nil && !errors.As(err, &known) && !errors.Is(err, errLeaving) {
		return &problem{Type: "about:blank", Status: statusGone, Title: "client closed request"}
	}
	p := s.problemOf(err)
	s.logFailure(r.Method+" "+loggedPath(r), p, err)
	return p
}

// logFailure logs an error whose cause is hidden from the client. An outage of the store
// fails every request, so it is logged once per second.
func (s *service) logFailure(request string, p *problem, err error) {
	switch p.Type {
	case problemPath + kindInternal.name:
		s.log.Error("request failed", "request", request, "error", err)
	case problemPath + kindStore.name:
		now := time.Now().UnixNano()
		if last := s.outageLogged.Load(); now-last >= int64(time.Second) && s.outageLogged.CompareAndSwap(last, now) {
			s.log.Warn("store unavailable", "request", request, "error", err)
		}
	}
}

// fail responds with an error.
func (s *service) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := s.diagnose(r, err)
	for key, values := range p.header {
		w.Header()[key] = values
	}
	if p.Status == tooMany && p.Capacity > 0 {
		s.rateLimit(w, p.Semaphore, p.Capacity, p.InUse, p.window)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// statusGone is the status that proxies log for a client that disconnected before the
// response.
const statusGone = 499
