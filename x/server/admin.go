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
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A semaphoreText is a semaphore as it is told.
type semaphoreText struct {
	Name       string       `json:"name"`
	Kind       string       `json:"kind"`
	Capacity   int64        `json:"capacity"`
	Effective  int64        `json:"effective_capacity"` // on the way to the capacity, with a ramp
	InUse      int64        `json:"in_use"`
	Waiting    int          `json:"waiting"`
	Draining   bool         `json:"draining"`
	Ramp       int64        `json:"ramp,omitempty"`
	MaxWaiters int64        `json:"max_waiters,omitempty"`
	TTL        seconds      `json:"ttl"`
	Window     seconds      `json:"window,omitempty"`
	Version    uint64       `json:"version"`
	Leases     []holderText `json:"leases,omitempty"`
	Line       []waiterText `json:"line,omitempty"`
}

type holderText struct {
	Lease   string    `json:"lease"`
	Weight  int64     `json:"weight"`
	Since   time.Time `json:"since"`
	Seen    time.Time `json:"seen,omitzero"` // when it was last heard of
	Holder  string    `json:"holder"`
	Meta    string    `json:"meta,omitempty"`
	Pooled  bool      `json:"pooled,omitempty"`
	Revoked bool      `json:"revoked,omitempty"`
}

type waiterText struct {
	Weight int64  `json:"weight"`
	Waiter string `json:"waiter"`
	Meta   string `json:"meta,omitempty"`
}

func describe(name string, s protocol.Snapshot) semaphoreText {
	c := s.Config
	t := semaphoreText{
		Name: name, Kind: "concurrency", Capacity: c.Capacity, Effective: s.Effective, InUse: s.InUse, Waiting: len(s.Line), Draining: c.Draining,
		Ramp: c.Ramp, MaxWaiters: c.MaxWaiters, TTL: span(c.TTL), Window: span(c.Window), Version: c.Version,
	}
	if c.Kind == protocol.Rate {
		t.Kind = "rate"
	}
	sessions := map[protocol.Session]protocol.SessionInfo{}
	for _, session := range s.Sessions {
		sessions[session.Session] = session
	}
	for _, l := range s.Leases {
		t.Leases = append(t.Leases, holderText{
			Lease: fmt.Sprintf("%d.%d", l.Seq, l.Session), Weight: l.Weight, Since: time.UnixMicro(int64(l.Since)).UTC(),
			Seen: time.UnixMicro(int64(sessions[l.Session].Seen)).UTC(), Holder: sessions[l.Session].Instance, Meta: l.Meta, Pooled: l.Pooled, Revoked: l.Revoked,
		})
	}
	for _, w := range s.Line {
		t.Line = append(t.Line, waiterText{Weight: w.Weight, Waiter: sessions[w.Session].Instance, Meta: w.Meta})
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

// tell answers with a semaphore. Its ETag is about the configuration alone.
func tell(w http.ResponseWriter, status int, name string, snapshot protocol.Snapshot) error {
	w.Header().Set("ETag", etag(snapshot.Config.Version))
	limits(w, name, snapshot.Effective, snapshot.InUse)
	return answer(w, status, firstPage(name, snapshot))
}

// limits say how many permits there are, and how many are left.
func limits(w http.ResponseWriter, name string, capacity, inUse int64) {
	w.Header().Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d", name, capacity))
	w.Header().Set("RateLimit", fmt.Sprintf("%q;r=%d", name, max(0, capacity-inUse)))
}

func etag(version uint64) string { return `"` + strconv.FormatUint(version, 10) + `"` }

// A configuration is what can be changed; what is not said stays.
type configuration struct {
	Capacity   *int64    `json:"capacity,omitempty"`
	Ramp       *int64    `json:"ramp,omitempty"`
	MaxWaiters *int64    `json:"max_waiters,omitempty"`
	Draining   *bool     `json:"draining,omitempty"`
	TTL        *duration `json:"ttl,omitempty"` // of one that is made
}

// configure makes a semaphore, or changes it, if it still has the version that
// If-Match names.
func (s *Server) configure(w http.ResponseWriter, r *http.Request) error {
	var wanted configuration
	if err := readJSON(r, &wanted); err != nil {
		return err
	}
	name := r.PathValue("name")
	status, err := s.change(r.Context(), name, r.Header.Get("If-Match"), wanted)
	s.audit(r.Context(), "configure", name, wanted.String(), err)
	if err != nil {
		return err
	}
	snapshot, err := s.client.Inspect(r.Context(), name)
	if err != nil {
		return err
	}
	return tell(w, status, name, snapshot)
}

// String is for the log.
func (c configuration) String() string {
	raw, _ := json.Marshal(c)
	return string(raw)
}

func (s *Server) change(ctx context.Context, name, match string, wanted configuration) (status int, err error) {
	status = http.StatusOK
	snapshot, err := s.client.Inspect(ctx, name)
	if errors.Is(err, fs.ErrNotExist) && match == "" {
		status = http.StatusCreated
		if snapshot, err = s.create(ctx, name, wanted); err == nil {
			match = etag(snapshot.Config.Version)
		}
	}
	if err != nil {
		return 0, err
	}
	if match != "" && match != "*" && match != etag(snapshot.Config.Version) {
		return 0, fmt.Errorf("%w: it has version %d, If-Match says %s; look again, and say it anew", protocol.ErrConflict, snapshot.Config.Version, match)
	}
	config := snapshot.Config
	set(&config.Capacity, wanted.Capacity)
	set(&config.Ramp, wanted.Ramp)
	set(&config.MaxWaiters, wanted.MaxWaiters)
	set(&config.Draining, wanted.Draining)
	if err := config.Check(); err != nil {
		return 0, invalid("%v", err)
	}
	if match == "" { // whatever it is now
		return status, s.client.Configure(ctx, name, func(c *protocol.Config) {
			set(&c.Capacity, wanted.Capacity)
			set(&c.Ramp, wanted.Ramp)
			set(&c.MaxWaiters, wanted.MaxWaiters)
			set(&c.Draining, wanted.Draining)
		})
	}
	return status, s.store.Administer(ctx, name, fleet.Command{Configure: &config})
}

func set[T any](field, to *T) {
	if to != nil {
		*field = *to
	}
}

// create makes a semaphore, by a session that is ended at once.
func (s *Server) create(ctx context.Context, name string, wanted configuration) (protocol.Snapshot, error) {
	var capacity int64
	var ttl duration
	set(&capacity, wanted.Capacity)
	set(&ttl, wanted.TTL)
	config := s.configFor(name, capacity, time.Duration(ttl))
	if wanted.Capacity == nil && config == (protocol.Config{}) {
		return protocol.Snapshot{}, invalid("there is no %q yet: say its capacity", name)
	}
	if err := config.Check(); err != nil {
		return protocol.Snapshot{}, invalid("%v", err)
	}
	session, _, err := s.store.Open(ctx, name, config, "administrator "+who(ctx).name)
	if err != nil {
		return protocol.Snapshot{}, err
	}
	if _, err := s.store.Apply(ctx, name, protocol.Batch{Session: session, Seq: 1, Bye: true}); err != nil {
		return protocol.Snapshot{}, err
	}
	return s.client.Inspect(ctx, name)
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	err := s.client.Delete(r.Context(), name)
	s.audit(r.Context(), "delete", name, "", err)
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// drain does not wait until all is back: who wants to know watches.
func (s *Server) drain(w http.ResponseWriter, r *http.Request) error {
	return s.setDraining(w, r, "drain", true)
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request) error {
	return s.setDraining(w, r, "resume", false)
}

func (s *Server) setDraining(w http.ResponseWriter, r *http.Request, op string, draining bool) error {
	name := r.PathValue("name")
	err := s.client.Configure(r.Context(), name, func(c *protocol.Config) { c.Draining = draining })
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
	if err := readJSON(r, &why); err != nil {
		return err
	}
	name := r.PathValue("name")
	number, _, _ := strings.Cut(r.PathValue("lease"), ".")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return invalid("lease %q: want one of those that GET /v1/semaphores/%s lists", r.PathValue("lease"), name)
	}
	err = s.client.ForceRelease(r.Context(), name, fleet.Revocation{Lease: protocol.Seq(seq), AtOnce: why.AtOnce, By: who(r.Context()).name, Why: why.Why})
	s.audit(r.Context(), "revoke", name, fmt.Sprintf("lease %d, at once %t: %s", seq, why.AtOnce, why.Why), err)
	if errors.Is(err, fs.ErrNotExist) {
		if _, there := s.client.Inspect(r.Context(), name); there == nil {
			return &problem{Status: http.StatusNotFound, Type: "urn:sema:no-such-lease", Title: "there is no such lease",
				Detail: fmt.Sprintf("lease %d of %q is gone already: it was given back, or has run out", seq, name)}
		}
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// audit notes what an administrator has done, or tried.
func (s *Server) audit(ctx context.Context, op, name, detail string, err error) {
	outcome := "done"
	if err != nil {
		outcome = err.Error()
	}
	caller := who(ctx)
	s.log.Info("audit", "who", caller.name, "from", caller.from, "op", op, "semaphore", name, "detail", detail, "outcome", outcome)
}
