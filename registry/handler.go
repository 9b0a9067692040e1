package registry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// Handler returns a page of all limits for a browser, and the same as JSON with
// ?format=json or the header Accept: application/json. Mount it where the other debug
// pages are:
//
//	http.Handle("/debug/sema", registry.Default.Handler())
//
// It changes nothing. It shows names, reasons and places in the code, so it belongs behind the
// same access control as net/http/pprof. ?name= selects names by prefix. A page has up to
// 200 limits (?limit=, at most 1000), and continues after a name with ?after=. The fields
// of the JSON are listed in docs/registry.md.
func (r *Registry) Handler() http.Handler { return http.HandlerFunc(r.serve) }

func (r *Registry) serve(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Vary", "Accept")
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is read-only: use GET", http.StatusMethodNotAllowed)
		return
	}
	q, err := queryOf(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var body bytes.Buffer
	if q.json {
		h.Set("Content-Type", "application/json")
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(r.overview(q))
	} else {
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", contentPolicy)
		err = pageTemplate.Execute(&body, page{r.overview(q), q})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(body.Bytes()) // the client may have left
}

const (
	defaultRows = 200
	maxRows     = 1000
	maxClasses  = 50 // of one limit, those in use first
	maxHolders  = 10 // of one limit, the oldest first
)

// A query is what a request asks for.
type query struct {
	json   bool
	prefix string
	after  string
	rows   int
}

func queryOf(req *http.Request) (q query, err error) {
	form := req.URL.Query()
	q = query{prefix: form.Get("name"), after: form.Get("after"), rows: defaultRows}
	switch format := form.Get("format"); format {
	case "json":
		q.json = true
	case "", "html":
		accept := req.Header.Get("Accept")
		q.json = format == "" && strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
	default:
		return q, fmt.Errorf("format is %q: want html or json", format)
	}
	if text := form.Get("limit"); text != "" {
		if q.rows, err = strconv.Atoi(text); err != nil || q.rows < 1 || q.rows > maxRows {
			return q, fmt.Errorf("limit is %q: want 1 to %d", text, maxRows)
		}
	}
	return q, nil
}

// The types below are the JSON. Their field names do not change.
type (
	overview struct {
		Total  int         `json:"total"`          // limits that match
		Limits []limitView `json:"limits"`         // of this page
		Next   string      `json:"next,omitempty"` // value of after for the next page
		File   *fileView   `json:"file,omitempty"`
	}
	fileView struct {
		Path          string     `json:"path,omitempty"`
		LoadedAt      *time.Time `json:"loaded_at,omitempty"`
		RejectedPath  string     `json:"rejected_path,omitempty"`
		RejectedSince *time.Time `json:"rejected_since,omitempty"`
		Error         string     `json:"error,omitempty"`
	}
	limitView struct {
		Name         string       `json:"name"`
		Why          string       `json:"why"`
		Kind         string       `json:"kind"`
		Site         string       `json:"site"`
		Shared       bool         `json:"shared"`
		Value        valueView    `json:"value"`
		Initial      valueView    `json:"initial"`
		Configured   bool         `json:"configured"`
		Note         string       `json:"configured_why,omitempty"`
		Problem      string       `json:"problem,omitempty"`
		Paused       bool         `json:"paused"`
		ClassesTotal int          `json:"classes_total"`
		Classes      []classView  `json:"classes,omitempty"`
		Holders      []holderView `json:"holders,omitempty"`
		statsView
	}
	valueView struct {
		Capacity int64   `json:"capacity"`
		Window   float64 `json:"window_seconds,omitempty"`
		Text     string  `json:"-"`
	}
	statsView struct {
		Capacity  int64   `json:"capacity"`
		InUse     int64   `json:"in_use"`
		Free      int64   `json:"free"`
		Debt      int64   `json:"debt"`
		Waiters   int     `json:"waiters"`
		Draining  bool    `json:"draining"`
		Closed    bool    `json:"closed"`
		Acquired  int64   `json:"acquired"`
		Waited    int64   `json:"waited"`
		TimedOut  int64   `json:"timed_out"`
		Cancelled int64   `json:"cancelled"`
		Rejected  int64   `json:"rejected"`
		WaitTime  float64 `json:"wait_seconds"`
	}
	classView struct {
		Name      string  `json:"name"`
		Weight    int64   `json:"weight"`
		Min       int64   `json:"min"`
		Max       int64   `json:"max"`
		Tier      int     `json:"tier"`
		QueuedFor float64 `json:"queued_seconds"` // age of the oldest waiter
		statsView
	}
	holderView struct {
		Weight int64   `json:"weight"`
		Age    float64 `json:"age_seconds"`
		Site   string  `json:"site"`
	}
)

// overview returns what a query asks for. It reads the statistics of one page only.
func (r *Registry) overview(q query) overview {
	all := r.list(func(name string) bool { return strings.HasPrefix(name, q.prefix) })
	o := overview{Total: len(all), Limits: []limitView{}, File: r.fileView()}
	start, found := slices.BinarySearchFunc(all, q.after, func(l Limit, after string) int { return cmp.Compare(l.Name, after) })
	if found {
		start++
	}
	all = all[start:]
	if len(all) > q.rows {
		all = all[:q.rows]
		o.Next = all[q.rows-1].Name
	}
	holders := sema.Holders()
	for _, l := range all {
		o.Limits = append(o.Limits, viewOf(l.measured(), holders))
	}
	return o
}

func (r *Registry) fileView() *fileView {
	r.mu.Lock()
	f := r.file
	r.mu.Unlock()
	if f.path == "" && f.err == nil {
		return nil
	}
	v := &fileView{Path: f.path, RejectedPath: f.rejected}
	if f.path != "" {
		v.LoadedAt = &f.loaded
	}
	if f.err != nil {
		v.RejectedSince, v.Error = &f.rejectedFrom, f.err.Error()
	}
	return v
}

func viewOf(l Limit, holders []sema.Holder) limitView {
	v := limitView{
		Name: l.Name, Why: l.Why, Kind: l.Kind, Site: l.Site, Shared: l.Shared, Value: valueViewOf(l.Value), Initial: valueViewOf(l.Initial),
		Configured: l.Configured, Note: l.Note, Paused: l.Paused(), statsView: statsViewOf(l.Stats),
	}
	if l.Problem != nil {
		v.Problem = l.Problem.Error()
	}
	v.Classes = classViewsOf(l)
	v.ClassesTotal = len(v.Classes)
	v.Classes = v.Classes[:min(len(v.Classes), maxClasses)]
	for i, h := range l.gate.holders(holders) {
		if i == maxHolders {
			break
		}
		v.Holders = append(v.Holders, holderView{h.Weight, h.Age.Seconds(), h.Site})
	}
	return v
}

// classViewsOf returns the classes, those with waiters and held permits first.
func classViewsOf(l Limit) (list []classView) {
	for name, st := range l.Classes() {
		list = append(list, classViewOf(name, st))
	}
	slices.SortFunc(list, func(a, b classView) int {
		return cmp.Or(cmp.Compare(b.Waiters, a.Waiters), cmp.Compare(b.InUse, a.InUse), cmp.Compare(a.Name, b.Name))
	})
	return list
}

func classViewOf(name string, st wfq.Stats) classView {
	return classView{
		Name: name, Weight: st.Share.Weight, Min: st.Share.Min, Max: st.Share.Max, Tier: st.Share.Tier,
		QueuedFor: st.QueuedFor.Seconds(), statsView: statsViewOf(st.Stats),
	}
}

func valueViewOf(v Value) valueView { return valueView{v.Capacity, v.Window.Seconds(), v.String()} }

func statsViewOf(st sema.Stats) statsView {
	return statsView{
		Capacity: st.Capacity, InUse: st.InUse, Free: st.Free, Debt: st.Debt, Waiters: st.Waiters,
		Draining: st.Draining, Closed: st.Closed, Acquired: st.Acquired, Waited: st.Waited,
		TimedOut: st.TimedOut, Cancelled: st.Cancelled, Rejected: st.Rejected, WaitTime: st.WaitTime.Seconds(),
	}
}
