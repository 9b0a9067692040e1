package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/desk"
)

// A leaseText is a lease as it is told.
type leaseText struct {
	Semaphore string  `json:"semaphore"`
	Lease     string  `json:"lease,omitempty"` // none for a rate, which is spent
	Weight    int64   `json:"weight"`
	TTL       seconds `json:"ttl,omitempty"`       // it is lost after that, unless it is renewed
	ValidFor  seconds `json:"valid_for,omitempty"` // from when this is said; renew before
	Fence     *fence  `json:"fence,omitempty"`     // to show to what is protected
}

// A fence is as in package fleet.
type fence struct {
	Seq     protocol.Seq `json:"seq"`
	Floor   protocol.Seq `json:"floor"`
	Revoked [][2]uint64  `json:"revoked"`
	Exact   bool         `json:"exact"`
}

// seconds are what JSON has of a duration.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

func textOf(l desk.Lease) leaseText {
	t := leaseText{Semaphore: l.Semaphore, Lease: l.ID, Weight: l.Weight, TTL: seconds(l.TTL), ValidFor: seconds(l.Left.Round(time.Millisecond))}
	if l.ID != "" {
		t.Fence = &fence{Seq: l.Fence.Seq, Floor: l.Fence.Floor, Exact: l.Fence.Exact, Revoked: [][2]uint64{}}
		for _, r := range l.Fence.Revoked {
			t.Fence.Revoked = append(t.Fence.Revoked, [2]uint64{uint64(r.From), uint64(r.To)})
		}
	}
	return t
}

// acquire answers with a lease, or holds one for as long as the connection lasts.
func (s *Server) acquire(w http.ResponseWriter, r *http.Request) error {
	wish, err := readWish(r)
	if err != nil {
		return err
	}
	keys, given := r.Header["Idempotency-Key"]
	if given && (len(keys) != 1 || keys[0] == "") {
		return invalid("Idempotency-Key: want one that is not empty, or none")
	}
	request, err := s.request(r.Context(), r.PathValue("name"), strings.Join(keys, ""), wish)
	if err != nil {
		return err
	}
	if wish.Hold == "connection" {
		return s.hold(w, r, request)
	}
	lease, err := s.lend(r.Context(), request)
	if err != nil {
		return err
	}
	if lease.ID != "" {
		w.Header().Set("Location", "/v1/semaphores/"+url.PathEscape(lease.Semaphore)+"/leases/"+lease.ID)
	}
	limits(w, lease.Semaphore, lease.Capacity, lease.InUse, lease.Window)
	return answer(w, http.StatusCreated, textOf(lease))
}

// lend waits for a lease.
func (s *Server) lend(ctx context.Context, request desk.Request) (desk.Lease, error) {
	if request.Wait > 0 {
		bounded, cancel := until(ctx, s.life)
		defer cancel()
		ctx = bounded
	}
	return s.desk.Acquire(ctx, request)
}

// A wish is what a request for permits says, in its query or as JSON.
type wish struct {
	Weight   int64     `json:"weight"`
	Wait     duration  `json:"wait"`
	Capacity *int64    `json:"capacity"` // to create the semaphore with; nil: it has to exist, or be declared
	TTL      *duration `json:"ttl"`      // likewise; nil: default 15s
	Meta     string    `json:"meta"`
	Hold     string    `json:"hold"` // "connection", or ""

	ramp, maxWaiters int64         // likewise, over RPC
	rate             time.Duration // likewise
}

// readWish reads the body, and the query, which counts more.
func readWish(r *http.Request) (w wish, err error) {
	w.Weight = 1
	if _, err := readJSON(r, &w); err != nil {
		return w, err
	}
	fields := fieldsOf(&w)
	for key, values := range r.URL.Query() {
		if want := setText(fields[key], values[0]); want != "" {
			return w, invalid("%s: %s: want %s", key, quote(values[0]), want)
		}
	}
	return w, nil
}

// maxTTL is of semaphores that anybody makes: what somebody holds who has gone is
// not to be had for as long.
const maxTTL = time.Hour

// minTTL is the shortest that stores accept.
const minTTL = 100 * time.Millisecond

// request is a wish as the desk has it.
func (s *Server) request(ctx context.Context, name, key string, w wish) (desk.Request, error) {
	if s.leaving.Load() {
		return desk.Request{}, errLeaving
	}
	if w.Hold != "" && w.Hold != "connection" {
		return desk.Request{}, invalid("hold: %s: want connection, or nothing", quote(w.Hold))
	}
	if limit := s.options.Limits.MaxWait; time.Duration(w.Wait) > limit {
		return desk.Request{}, invalid("wait: %v: want %v at most; ask again when it has passed", time.Duration(w.Wait), limit)
	}
	if len(key) > 200 {
		return desk.Request{}, invalid("Idempotency-Key: want 200 bytes at most")
	}
	config, err := s.configOf(name, w)
	if err != nil {
		return desk.Request{}, err
	}
	request := desk.Request{Semaphore: name, Weight: w.Weight, Wait: time.Duration(w.Wait), Holder: w.Meta, Key: key, Principal: who(ctx).principal, Config: config}
	if i := who(ctx); i.identity != everybody {
		request.By = i.name
	}
	return request, nil
}

// configOf returns what the semaphore of a wish is created with.
func (s *Server) configOf(name string, w wish) (protocol.Config, error) {
	var capacity int64
	var ttl time.Duration
	if w.Capacity != nil {
		if capacity = *w.Capacity; capacity < 1 {
			return protocol.Config{}, invalid("capacity: %d: want 1 or more; PUT /v1/semaphores/{name} creates one that is paused", capacity)
		}
	}
	if w.TTL != nil {
		if ttl = time.Duration(*w.TTL); ttl < minTTL || ttl > maxTTL {
			return protocol.Config{}, invalid("ttl: %v: want %v at least and %v at most; an operator may declare semaphores with more", ttl, minTTL, maxTTL)
		}
	}
	config := s.configFor(name, capacity, ttl)
	if _, declared := s.declared.of(name); declared || config == (protocol.Config{}) {
		return config, nil
	}
	return Declaration{Capacity: capacity, TTL: ttl, Ramp: w.ramp, MaxWaiters: w.maxWaiters, Rate: w.rate}.Config(), nil
}

func (s *Server) renew(w http.ResponseWriter, r *http.Request) error {
	if err := noBody(r); err != nil {
		return err
	}
	lease, err := s.desk.Renew(r.Context(), r.PathValue("name"), r.PathValue("lease"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, textOf(lease))
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) error {
	if err := noBody(r); err != nil {
		return err
	}
	if _, err := s.desk.Release(r.Context(), r.PathValue("name"), r.PathValue("lease")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// keyless fails if two connections could have the same lease: when one of them
// ended, the other would go on without.
func keyless(held desk.Request) error {
	if held.Key != "" {
		return invalid("Idempotency-Key: a lease that is as long as its connection has none; ask again without")
	}
	return nil
}

// hold has a lease as long as its connection: the answer is a line for the lease,
// and one for each time it is renewed.
func (s *Server) hold(w http.ResponseWriter, r *http.Request, request desk.Request) error {
	if err := keyless(request); err != nil {
		return err
	}
	ctx, cancel := until(r.Context(), s.life)
	defer cancel()
	flush := http.NewResponseController(w)
	granted, careless := false, func() {}
	defer func() { careless() }()
	err := s.desk.Hold(ctx, request, func(l desk.Lease) {
		if !granted {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
			granted = true
			careless = watchOver(r, l.TTL/3)
		}
		if json.NewEncoder(w).Encode(textOf(l)) != nil || flush.Flush() != nil {
			cancel() // it has gone
		}
	})
	if !granted {
		return err
	}
	if err != nil {
		_ = json.NewEncoder(w).Encode(problemOf(fmt.Errorf("the lease is gone: %w", err)))
	}
	return nil
}
