package server

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
)

// A step is one request of several.
type step struct {
	Op        string `json:"op"` // acquire, renew, release
	Semaphore string `json:"semaphore"`
	Lease     string `json:"lease"`
	wish
}

// An outcome is what became of it: a lease, or a problem.
type outcome struct {
	Lease   *leaseText `json:"lease,omitempty"`
	Problem *problem   `json:"problem,omitempty"`

	at time.Time
}

// age takes off the time for which others of the batch have waited. A lease that
// may be lost by then is not told as one.
func (o *outcome) age() {
	if o.Lease == nil || o.Lease.Lease == "" {
		return
	}
	o.Lease.ValidFor -= seconds(time.Since(o.at).Round(time.Millisecond))
	if o.Lease.ValidFor <= 0 {
		detail := "the lease was not renewed while others of the batch waited; wait for less, or ask one by one"
		*o = outcome{Problem: problemOf(&sema.Error{Op: "hold", Name: o.Lease.Semaphore, Err: sema.ErrLost, Detail: detail})}
	}
}

const maxSteps = 100

// batch does several things at a time, each by itself and in no order.
func (s *Server) batch(w http.ResponseWriter, r *http.Request) error {
	var asked struct {
		Requests []json.RawMessage `json:"requests"`
	}
	if _, err := readJSON(r, &asked); err != nil {
		return err
	}
	if len(asked.Requests) == 0 || len(asked.Requests) > maxSteps {
		return invalid("requests: there are %d: want 1 to %d", len(asked.Requests), maxSteps)
	}
	outcomes := make([]outcome, len(asked.Requests))
	var wg sync.WaitGroup
	for i, raw := range asked.Requests {
		wg.Go(func() {
			lease, err := s.step(r, raw)
			outcomes[i] = outcome{Lease: lease, at: time.Now()}
			if err != nil {
				outcomes[i] = outcome{Problem: s.diagnose(r, err)}
			}
		})
	}
	wg.Wait()
	for i := range outcomes {
		outcomes[i].age()
	}
	return answer(w, http.StatusOK, map[string]any{"outcomes": outcomes})
}

func (s *Server) step(r *http.Request, raw json.RawMessage) (*leaseText, error) {
	one := step{wish: wish{Weight: 1}}
	if err := decodeObject(raw, &one); err != nil {
		return nil, err
	}
	if err := fleet.CheckName(one.Semaphore); err != nil {
		return nil, err
	}
	if err := who(r.Context()).allow(Acquire, one.Semaphore); err != nil {
		return nil, err
	}
	switch one.Op {
	case "acquire":
		if one.Hold != "" {
			return nil, invalid("hold: not in a batch")
		}
		request, err := s.request(r.Context(), one.Semaphore, "", one.wish)
		if err != nil {
			return nil, err
		}
		lease, err := s.lend(r.Context(), request)
		if err != nil {
			return nil, err
		}
		text := textOf(lease)
		return &text, nil
	case "renew":
		lease, err := s.desk.Renew(r.Context(), one.Semaphore, one.Lease)
		if err != nil {
			return nil, err
		}
		text := textOf(lease)
		return &text, nil
	case "release":
		_, err := s.desk.Release(r.Context(), one.Semaphore, one.Lease)
		return nil, err
	}
	return nil, invalid("op: %s: want acquire, renew or release", quote(one.Op))
}
