package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A summaryText is a semaphore without its holders and waiters.
type summaryText struct {
	Name       string  `json:"name"`
	Kind       string  `json:"kind"`
	Capacity   int64   `json:"capacity"`
	Effective  int64   `json:"effective_capacity"` // on the way to the capacity, with a ramp
	InUse      int64   `json:"in_use"`
	Waiting    int     `json:"waiting"`
	Draining   bool    `json:"draining"`
	Ramp       int64   `json:"ramp,omitempty"`
	MaxWaiters int64   `json:"max_waiters,omitempty"`
	TTL        seconds `json:"ttl"`
	Window     seconds `json:"window,omitempty"`
	Version    uint64  `json:"version"`
}

// A semaphoreText is a semaphore with all that is known of it.
type semaphoreText struct {
	summaryText
	Leases []holderText `json:"leases"`
	Line   []waiterText `json:"line"`
}

type holderText struct {
	Fence   uint64    `json:"fence"` // of which the holder alone knows the id
	Weight  int64     `json:"weight"`
	Since   time.Time `json:"since"`
	Seen    time.Time `json:"seen,omitzero"` // when it was last heard of
	Holder  string    `json:"holder"`
	Meta    string    `json:"meta,omitempty"` // as the client sent it
	By      string    `json:"by,omitempty"`   // the name of the client's token
	Pooled  bool      `json:"pooled,omitempty"`
	Revoked bool      `json:"revoked,omitempty"`
}

type waiterText struct {
	Weight int64  `json:"weight"`
	Waiter string `json:"waiter"`
	Meta   string `json:"meta,omitempty"`
	By     string `json:"by,omitempty"`
}

func summarize(s protocol.Summary) summaryText {
	c := s.Config
	t := summaryText{
		Name: s.Name, Kind: "concurrency", Capacity: c.Capacity, Effective: s.Effective, InUse: s.InUse, Waiting: int(s.Waiting), Draining: c.Draining,
		Ramp: c.Ramp, MaxWaiters: c.MaxWaiters, TTL: span(c.TTL), Window: span(c.Window), Version: c.Version,
	}
	if c.Kind == protocol.Rate {
		t.Kind = "rate"
	}
	return t
}

func describe(name string, s protocol.Snapshot) semaphoreText {
	t := semaphoreText{summarize(s.Summary(name)), []holderText{}, []waiterText{}}
	sessions := map[protocol.Session]protocol.SessionInfo{}
	for _, session := range s.Sessions {
		sessions[session.Session] = session
	}
	for _, l := range s.Leases {
		session := sessions[l.Session]
		t.Leases = append(t.Leases, holderText{
			Fence: uint64(l.Seq), Weight: l.Weight, Since: time.UnixMicro(int64(l.Since)).UTC(),
			Seen: time.UnixMicro(int64(session.Renewed)).UTC(), Holder: session.Client.Instance, Meta: l.Details.About(), By: l.Details.By, Pooled: l.Pooled, Revoked: l.Revoked,
		})
	}
	for _, w := range s.Queue {
		t.Line = append(t.Line, waiterText{Weight: w.Weight, Waiter: sessions[w.Session].Client.Instance, Meta: w.Details.About(), By: w.Details.By})
	}
	return t
}

func span(m protocol.Micros) seconds { return seconds(time.Duration(m) * time.Microsecond) }

func (s *Server) inspect(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	snapshot, err := s.client.Inspect(r.Context(), name)
	if err != nil {
		return err
	}
	return tell(w, http.StatusOK, name, snapshot)
}

// tell responds with a semaphore, and the [etag] of its configuration.
func tell(w http.ResponseWriter, status int, name string, snapshot protocol.Snapshot) error {
	w.Header().Set("ETag", etag(snapshot.Config.Version))
	limits(w, name, snapshot.Effective, snapshot.InUse, time.Duration(span(snapshot.Config.Window)))
	return answer(w, status, firstPage(name, snapshot))
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) error {
	if err := noBody(r); err != nil {
		return err
	}
	when, err := readConditions(r.Header)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	err = s.removeIf(r.Context(), name, when)
	s.audit(r.Context(), "delete", name, "", err)
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// removeIf deletes a semaphore if the preconditions hold. Stores have no conditional
// delete: a change between the check and the delete is lost.
func (s *Server) removeIf(ctx context.Context, name string, when conditions) error {
	if when != (conditions{}) {
		snapshot, err := s.client.Inspect(ctx, name)
		if err != nil {
			return err
		}
		if err := when.check(true, snapshot.Config.Version); err != nil {
			return err
		}
	}
	return s.client.Delete(ctx, name)
}

// drain does not wait until everything is released: GET …/watch shows that.
func (s *Server) drain(w http.ResponseWriter, r *http.Request) error {
	return s.setDraining(w, r, "drain", true)
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request) error {
	return s.setDraining(w, r, "resume", false)
}

func (s *Server) setDraining(w http.ResponseWriter, r *http.Request, op string, draining bool) error {
	if err := noBody(r); err != nil {
		return err
	}
	name := r.PathValue("name")
	when, err := readConditions(r.Header)
	if err != nil {
		return err
	}
	_, err = s.change(r.Context(), name, when, configuration{Draining: &draining, existing: true})
	s.audit(r.Context(), op, name, "", err)
	if err != nil {
		return err
	}
	return s.inspect(w, r)
}

// A revocation is why a lease is taken away.
type revocation struct {
	Why    string `json:"why"`
	AtOnce bool   `json:"at_once"` // others are let in while it may still be in use
}

func (s *Server) revoke(w http.ResponseWriter, r *http.Request) error {
	var why revocation
	if _, err := readJSON(r, &why); err != nil {
		return err
	}
	name := r.PathValue("name")
	seq, err := strconv.ParseUint(r.PathValue("fence"), 10, 64)
	if err != nil {
		return invalid("fence: %s: want the number of a lease, as GET /v1/semaphores/%s lists it", quote(r.PathValue("fence")), name)
	}
	err = s.client.Revoke(r.Context(), name, fleet.Revocation{Lease: protocol.Seq(seq), AtOnce: why.AtOnce, By: who(r.Context()).name, Why: why.Why})
	s.audit(r.Context(), "revoke", name, fmt.Sprintf("lease %d, at once %t: %s", seq, why.AtOnce, why.Why), err)
	err = s.missingLease(r.Context(), name, protocol.Seq(seq), err)
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// missingLease tells a lease that does not exist from a semaphore that does not.
func (s *Server) missingLease(ctx context.Context, name string, lease protocol.Seq, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := s.client.Inspect(ctx, name); err != nil {
		return err
	}
	return newProblem(kindNoLease, "lease %d of %q does not exist: it was released, or has expired", lease, name)
}

// audit notes what an administrator has done, or tried.
func (s *Server) audit(ctx context.Context, op, name, detail string, err error) {
	outcome := "done"
	if err != nil {
		outcome = err.Error()
	}
	caller := who(ctx)
	s.log.Info("audit", "who", caller.name, "principal", caller.principal, "from", caller.from, "op", op, "semaphore", name, "detail", detail, "outcome", outcome)
}
