package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
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
	Revoked [][2]uint64  `json:"revoked,omitempty"`
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
		t.Fence = &fence{Seq: l.Fence.Seq, Floor: l.Fence.Floor, Exact: l.Fence.Exact}
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
	request, err := s.request(r.Context(), r.PathValue("name"), r.Header.Get("Idempotency-Key"), wish)
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
	limits(w, lease.Semaphore, lease.Capacity, lease.InUse)
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
	Weight   int64    `json:"weight"`
	Wait     duration `json:"wait"`
	Capacity int64    `json:"capacity"` // if it is to be made, and nothing is declared
	TTL      duration `json:"ttl"`      // likewise
	Meta     string   `json:"meta"`
	Hold     string   `json:"hold"` // "connection", or ""
}

// A duration is a text like 30s, or seconds.
type duration time.Duration

func (d *duration) UnmarshalJSON(raw []byte) error {
	text := strings.Trim(string(raw), `"`)
	if plain, err := strconv.ParseFloat(text, 64); err == nil {
		*d = duration(plain * float64(time.Second))
		return nil
	}
	parsed, err := time.ParseDuration(text)
	*d = duration(parsed)
	return err
}

func readWish(r *http.Request) (w wish, err error) {
	w.Weight = 1
	if err := readJSON(r, &w); err != nil {
		return w, err
	}
	if r.URL.RawQuery == "" {
		return w, nil
	}
	for key, values := range r.URL.Query() {
		value := values[len(values)-1]
		switch key {
		case "weight":
			w.Weight, err = strconv.ParseInt(value, 10, 64)
		case "capacity":
			w.Capacity, err = strconv.ParseInt(value, 10, 64)
		case "wait":
			err = w.Wait.UnmarshalJSON([]byte(value))
		case "ttl":
			err = w.TTL.UnmarshalJSON([]byte(value))
		case "meta":
			w.Meta = value
		case "hold":
			w.Hold = value
		default:
			err = errors.New("there is no such parameter")
		}
		if err != nil {
			return w, invalid("%s=%q: %v; want weight=1 wait=30s capacity=5 ttl=15s meta=… hold=connection", key, value, err)
		}
	}
	return w, nil
}

// readJSON reads a body, which may be empty.
func readJSON(r *http.Request, into any) error {
	if r.Body == nil || r.ContentLength == 0 {
		return nil
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return invalid("the body is not the JSON that is wanted here: %v; see /openapi.json", err)
	}
	if decoder.More() {
		return invalid("the body has more than one value of JSON; see /openapi.json")
	}
	return nil
}

// maxTTL is of semaphores that anybody makes: what somebody holds who has gone is
// not to be had for as long.
const maxTTL = time.Hour

// request is a wish as the desk has it.
func (s *Server) request(ctx context.Context, name, key string, w wish) (desk.Request, error) {
	if s.leaving.Load() {
		return desk.Request{}, errLeaving
	}
	if w.Hold != "" && w.Hold != "connection" {
		return desk.Request{}, invalid("hold=%q: want connection, or nothing", w.Hold)
	}
	if limit := s.options.Limits.MaxWait; time.Duration(w.Wait) > limit {
		return desk.Request{}, invalid("wait %v: want %v at most; ask again when it has passed", time.Duration(w.Wait), limit)
	}
	if ttl := time.Duration(w.TTL); ttl < 0 || ttl > maxTTL {
		return desk.Request{}, invalid("ttl %v: want %v at most; an operator may declare semaphores with more", ttl, maxTTL)
	}
	if len(key) > 200 {
		return desk.Request{}, invalid("Idempotency-Key: want 200 bytes at most")
	}
	meta := w.Meta
	if slices.ContainsFunc(strings.Fields(meta), func(field string) bool { return strings.HasPrefix(field, "key=") || strings.HasPrefix(field, "by=") }) {
		return desk.Request{}, invalid("meta: key= and by= are said by the server")
	}
	if i := who(ctx); i.identity != everybody {
		meta = strings.TrimSpace(meta + " by=" + strconv.Quote(i.name))
		if key != "" {
			key = i.principal + "\x00" + key // others may use the same
		}
	}
	return desk.Request{
		Semaphore: name, Weight: w.Weight, Wait: time.Duration(w.Wait), Meta: meta, Key: key,
		Config: s.configFor(name, w.Capacity, time.Duration(w.TTL)),
	}, nil
}

func (s *Server) renew(w http.ResponseWriter, r *http.Request) error {
	lease, err := s.desk.Renew(r.Context(), r.PathValue("name"), r.PathValue("lease"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, textOf(lease))
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) error {
	if err := s.desk.Release(r.Context(), r.PathValue("name"), r.PathValue("lease")); err != nil {
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
