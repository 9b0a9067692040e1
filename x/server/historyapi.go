package server

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/sema-go/sema/x/server/internal/history"
)

// openHistory opens the history. A server whose directory cannot be used keeps the history in
// memory, and returns why: permits do not depend on it.
func (s *service) openHistory() (h *history.History, unkept error) {
	h, unkept = history.Open(s.options.History, 0, time.Now())
	if unkept != nil {
		s.log.Error("the history is not kept across restarts", "error", unkept)
		h, _ = history.Open("", 0, time.Now())
	}
	h.Note(history.Event{At: time.Now(), Kind: "restart", Detail: s.options.Version})
	return h, unkept
}

// historyError returns why the history is not kept across restarts; nil: it is, or is not meant
// to be.
func (s *service) historyError() error { return cmp.Or(s.unkept, s.history.Err()) }

// A past is the history of a semaphore in JSON.
type past struct {
	Semaphore string          `json:"semaphore"`
	Range     seconds         `json:"range"`
	Step      seconds         `json:"step"` // interval of points; shorter while the semaphore was viewed
	Points    []pastPoint     `json:"points"`
	Events    []history.Event `json:"events"` // changes by operators, and restarts of the server
}

// A pastPoint is a sample in JSON.
type pastPoint struct {
	At        time.Time `json:"at"`
	InUse     int64     `json:"in_use"`
	Effective int64     `json:"effective_capacity"`
	Waiting   int64     `json:"waiting"`
	Grants    int64     `json:"grants"`   // since the last point
	Failures  int64     `json:"failures"` // acquires that were not granted, since the last point
	HeadAge   seconds   `json:"head_age"`
	WaitP50   seconds   `json:"wait_p50"` // of the last minutes, as all percentiles
	WaitP99   seconds   `json:"wait_p99"`
	HoldP50   seconds   `json:"hold_p50"`
	HoldP99   seconds   `json:"hold_p99"`
}

// past returns the history of a semaphore.
func (s *service) past(ctx context.Context, name string, span time.Duration) (past, error) {
	if err := s.authorize(ctx, Read, name); err != nil {
		return past{}, err
	}
	if err := s.reading(ctx, 1); err != nil {
		return past{}, err
	}
	now := time.Now()
	curve, events := s.history.Curve(name, now.Add(-span), now), s.history.Events(name, now.Add(-span))
	if len(curve.Points) == 0 {
		if _, err := s.snapshot(ctx, name); err != nil {
			return past{}, err
		}
	}
	p := past{name, seconds(span), seconds(curve.Step), make([]pastPoint, len(curve.Points)), events}
	if events == nil {
		p.Events = []history.Event{}
	}
	for i, c := range curve.Points {
		p.Points[i] = pastPoint{
			c.At.UTC(), c.InUse, c.Effective, c.Waiting, c.Grants, c.Failures,
			seconds(c.HeadAge), seconds(c.WaitP50), seconds(c.WaitP99), seconds(c.HoldP50), seconds(c.HoldP99),
		}
	}
	return p, nil
}

// history responds with the history of a semaphore.
func (a jsonAPI) history(w http.ResponseWriter, r *http.Request) error {
	query := struct {
		Range duration `json:"range"`
	}{duration(time.Hour)}
	if err := readQuery(r, &query); err != nil {
		return err
	}
	span := time.Duration(query.Range)
	if span < time.Minute || span > history.Long {
		return invalid("range: %v: want 1m at least and 24h at most", span)
	}
	p, err := a.service.past(r.Context(), r.PathValue("name"), span)
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, p)
}
