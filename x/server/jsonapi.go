package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
)

// A jsonAPI is the codec of HTTP and JSON over the service. Its methods are the handlers of
// the routes.
type jsonAPI struct{ service *service }

// An acquireBody is a request for permits, in the query or as JSON.
type acquireBody struct {
	Weight     int64       `json:"weight"`
	Wait       duration    `json:"wait"`
	Capacity   *int64      `json:"capacity"` // this and the next five fields configure a semaphore that is created
	TTL        *duration   `json:"ttl"`
	Window     *duration   `json:"window"`
	Ramp       *int64      `json:"ramp"`
	MaxWaiters *maxWaiters `json:"max_waiters"`
	Numbered   *bool       `json:"numbered"`
	Holder     string      `json:"holder"`
	Key        string      `json:"idempotency_key"` // or the header Idempotency-Key
	Hold       string      `json:"hold"`            // "connection", or ""
}

func (b acquireBody) request(semaphore string) acquireRequest {
	return acquireRequest{
		semaphore: semaphore, weight: b.Weight, wait: time.Duration(b.Wait), holder: b.Holder, key: b.Key,
		create: settings{Capacity: b.Capacity, TTL: b.TTL, Window: b.Window, Ramp: b.Ramp, MaxWaiters: b.MaxWaiters, Numbered: b.Numbered},
	}
}

// acquire responds with a lease, or holds one for the lifetime of the connection.
func (a jsonAPI) acquire(w http.ResponseWriter, r *http.Request) error {
	body := acquireBody{Weight: 1}
	if _, err := readJSON(r, &body); err != nil {
		return err
	}
	if r.URL.RawQuery != "" { // the query has precedence over the body
		if err := readQuery(r, &body); err != nil {
			return err
		}
	}
	keys, given := r.Header["Idempotency-Key"]
	if given && (len(keys) != 1 || keys[0] == "") {
		return invalid("Idempotency-Key: want one non-empty value, or no such header")
	}
	if given && body.Key != "" && body.Key != keys[0] {
		return invalid("idempotency_key: differs from the header Idempotency-Key")
	}
	if given {
		body.Key = keys[0]
	}
	request := body.request(r.PathValue("name"))
	switch body.Hold {
	case "connection":
		return a.hold(w, r, request)
	case "":
	default:
		return invalid("hold: %s: want connection, or nothing", quote(body.Hold))
	}
	lease, err := a.service.acquire(r.Context(), request)
	if err != nil {
		return err
	}
	if lease.ID != "" {
		w.Header().Set("Location", "/v1/semaphores/"+url.PathEscape(lease.Semaphore)+"/leases/"+lease.ID)
	}
	a.service.rateLimit(w, lease.Semaphore, lease.Capacity, lease.InUse, lease.Window)
	return respondLease(w, http.StatusCreated, lease)
}

// hold responds with a line of JSON for the lease, and one for each renewal.
func (a jsonAPI) hold(w http.ResponseWriter, r *http.Request, request acquireRequest) error {
	flush := http.NewResponseController(w)
	granted, unguard := false, func() {}
	defer func() { unguard() }()
	err := a.service.hold(r.Context(), request, func(l leasing.Lease) error {
		if !granted {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
			granted = true
			unguard = detectDisconnect(r, l.TTL/3)
		}
		if err := json.NewEncoder(w).Encode(newLeaseText(l)); err != nil {
			return err
		}
		return flush.Flush()
	})
	if !granted {
		return err
	}
	if err != nil {
		_ = json.NewEncoder(w).Encode(a.service.problemOf(fmt.Errorf("the lease has ended: %w", err)))
	}
	return nil
}

func (a jsonAPI) renew(w http.ResponseWriter, r *http.Request) error {
	if err := rejectBody(r); err != nil {
		return err
	}
	lease, err := a.service.renew(r.Context(), r.PathValue("name"), r.PathValue("id"))
	if err != nil {
		return err
	}
	return respondLease(w, http.StatusOK, lease)
}

func (a jsonAPI) release(w http.ResponseWriter, r *http.Request) error {
	if err := rejectBody(r); err != nil {
		return err
	}
	if err := a.service.release(r.Context(), r.PathValue("name"), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// A batchBody is one operation of a batch.
type batchBody struct {
	Op        string `json:"op"` // acquire, renew, release
	Semaphore string `json:"semaphore"`
	ID        string `json:"id"` // of the lease
	acquireBody
}

// A resultText is the result of a batch item: a lease, a problem, or nothing for a release.
type resultText struct {
	Lease   *leaseText `json:"lease,omitempty"`
	Problem *problem   `json:"problem,omitempty"`
}

func (a jsonAPI) batch(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Requests []json.RawMessage `json:"requests"`
	}
	if _, err := readJSON(r, &body); err != nil {
		return err
	}
	items := make([]batchItem, len(body.Requests))
	for i, raw := range body.Requests {
		if i < maxBatch {
			items[i] = readItem(raw)
		}
	}
	results, err := a.service.batch(r.Context(), items)
	if err != nil {
		return err
	}
	texts := make([]resultText, len(results))
	for i, result := range results {
		if result.lease != nil {
			texts[i].Lease = newLeaseText(*result.lease)
		}
		if result.err != nil {
			texts[i].Problem = a.service.diagnose(r, result.err)
		}
	}
	return respond(w, http.StatusOK, map[string]any{"results": texts})
}

func readItem(raw json.RawMessage) (item batchItem) {
	one := batchBody{acquireBody: acquireBody{Weight: 1}}
	if err := decodeObject(raw, &one); err != nil {
		return batchItem{err: err}
	}
	lease := leaseKey{one.Semaphore, one.ID}
	switch {
	case one.Op == "acquire" && one.Hold != "":
		return batchItem{err: invalid("hold: not in a batch")}
	case one.Op == "acquire":
		request := one.request(one.Semaphore)
		return batchItem{acquire: &request}
	case one.Op == "renew":
		return batchItem{renew: &lease}
	case one.Op == "release":
		return batchItem{release: &lease}
	}
	return batchItem{err: invalid("op: %s: want acquire, renew or release", quote(one.Op))}
}

func (a jsonAPI) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	p, err := pageOf(query)
	if err != nil {
		return err
	}
	found, next, err := a.service.list(r.Context(), query.Get("prefix"), p)
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, struct {
		Semaphores []summary `json:"semaphores"`
		Next       string    `json:"next,omitempty"` // cursor of the next page; "": last page
	}{found, next})
}

func (a jsonAPI) info(w http.ResponseWriter, r *http.Request) error {
	p, err := pageOf(r.URL.Query())
	if err != nil {
		return err
	}
	now, err := a.service.info(r.Context(), r.PathValue("name"), p)
	if err != nil {
		return err
	}
	return a.respondInfo(w, http.StatusOK, now)
}

// respondInfo responds with a semaphore, and with the [etag] of its configuration.
func (a jsonAPI) respondInfo(w http.ResponseWriter, status int, now info) error {
	w.Header().Set("ETag", etag(now.Version))
	a.service.rateLimit(w, now.Name, now.Effective, now.InUse, time.Duration(now.Window))
	return respond(w, status, now)
}

func (a jsonAPI) configure(w http.ResponseWriter, r *http.Request) error {
	var wanted settings
	switch given, err := readJSON(r, &wanted); {
	case err != nil:
		return err
	case !given:
		return invalid(`the body is empty: want the settings, such as {"capacity": 8}`)
	}
	when, err := readConditions(r.Header)
	if err != nil {
		return err
	}
	now, created, err := a.service.configure(r.Context(), r.PathValue("name"), when, wanted)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return a.respondInfo(w, status, now)
}

func (a jsonAPI) delete(w http.ResponseWriter, r *http.Request) error {
	when, err := readBare(r)
	if err != nil {
		return err
	}
	if err := a.service.delete(r.Context(), r.PathValue("name"), when); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a jsonAPI) drain(w http.ResponseWriter, r *http.Request) error {
	when, err := readBare(r)
	if err != nil {
		return err
	}
	var query struct {
		Wait duration `json:"wait"`
	}
	if err := readQuery(r, &query); err != nil {
		return err
	}
	now, err := a.service.drain(r.Context(), r.PathValue("name"), when, time.Duration(query.Wait))
	if err != nil {
		return err
	}
	return a.respondInfo(w, http.StatusOK, now)
}

func (a jsonAPI) resume(w http.ResponseWriter, r *http.Request) error {
	when, err := readBare(r)
	if err != nil {
		return err
	}
	now, err := a.service.resume(r.Context(), r.PathValue("name"), when)
	if err != nil {
		return err
	}
	return a.respondInfo(w, http.StatusOK, now)
}

// readBare reads the preconditions of a request without a body.
func readBare(r *http.Request) (conditions, error) {
	if err := rejectBody(r); err != nil {
		return conditions{}, err
	}
	return readConditions(r.Header)
}

func (a jsonAPI) revoke(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Why    string `json:"why"`
		AtOnce bool   `json:"at_once"` // the permits are free at once, though the holder may still use them
	}
	if _, err := readJSON(r, &body); err != nil {
		return err
	}
	name := r.PathValue("name")
	lease, err := strconv.ParseUint(r.PathValue("lease"), 10, 64)
	if err != nil {
		return invalid("lease: %s: want the number of a lease, as GET /v1/semaphores/%s lists it", quote(r.PathValue("lease")), name)
	}
	if err := a.service.revoke(r.Context(), name, fleet.Revocation{Lease: protocol.Seq(lease), AtOnce: body.AtOnce, Why: body.Why}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// watch streams a semaphore, again after each change: as server-sent events for clients that
// accept them, or else as lines of JSON.
func (a jsonAPI) watch(w http.ResponseWriter, r *http.Request) error {
	begin, end, kind := "", "\n", "application/x-ndjson"
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		begin, end, kind = "data: ", "\n\n", "text/event-stream"
	}
	out := stream{w, http.NewResponseController(w)}
	started := false
	return a.service.watch(r.Context(), r.PathValue("name"), func(now *observation) bool {
		if !started {
			started = true
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Cache-Control", "no-store")
			if r.Method == http.MethodHead {
				return false
			}
		}
		switch {
		case now == nil:
			return out.send("\n")
		case now.err != nil:
			text, _ := json.Marshal(a.service.diagnose(r, now.err))
			return out.send(begin, string(text), end)
		}
		return out.send(begin, string(now.json()), end)
	})
}

// rateLimit sets the RateLimit headers (draft-ietf-httpapi-ratelimit-headers): the capacity
// and the number of free permits. Those of a rate contain its window and, if no permit is
// free, the time until one is.
func (s *service) rateLimit(w http.ResponseWriter, name string, capacity, inUse int64, window time.Duration) {
	free := max(0, capacity-inUse)
	text := strconv.AppendQuote(make([]byte, 0, 2*len(name)+64), name) // one allocation for both values
	text = strconv.AppendInt(append(text, ";q="...), capacity, 10)
	if window > 0 {
		text = strconv.AppendInt(append(text, ";w="...), wholeSeconds(window), 10)
	}
	policy := len(text)
	text = strconv.AppendInt(append(strconv.AppendQuote(text, name), ";r="...), free, 10)
	if window > 0 && free == 0 {
		in := s.store.freeIn(&sema.Error{Name: name, Weight: 1, Err: sema.ErrTimeout})
		text = strconv.AppendInt(append(text, ";t="...), wholeSeconds(cmp.Or(in, returnTime(window, 1, capacity))), 10)
	}
	both := string(text)
	values := []string{both[:policy], both[policy:]} // and one for both headers
	w.Header()["Ratelimit-Policy"], w.Header()["Ratelimit"] = values[:1:1], values[1:]
}

// returnTime returns the average time in which that many permits of a rate become free, for
// rates of which this server has not seen the grants.
func returnTime(window time.Duration, weight, capacity int64) time.Duration {
	if weight >= capacity {
		return window
	}
	return time.Duration(float64(window) * float64(weight) / float64(capacity))
}

// wholeSeconds rounds up to whole seconds, at least 1.
func wholeSeconds(d time.Duration) int64 { return max(1, int64(math.Ceil(d.Seconds()))) }

func respond(w http.ResponseWriter, status int, body any) error {
	writeJSONHeader(w, status)
	_ = json.NewEncoder(w).Encode(body) // fails if the client has disconnected
	return nil
}

func writeJSONHeader(w http.ResponseWriter, status int) {
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = valueJSON, valueNoStore
	w.WriteHeader(status)
}
