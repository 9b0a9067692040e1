package admit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/wfq"
)

// Admin returns a page for operators, with the state of the controller and its switches, and
// the same as JSON with ?format=json or the header Accept: application/json. A POST changes
// something; its form has one or more of
//
//	shed=on|off                        of all requests, or of one class with class=NAME
//	limit=N                            requests in flight
//	class=NAME&weight=N&max=N&tier=N   the share of a class; what is absent stays
//	drain=on|off                       rejects all new requests, without waiting
//	breaker=open|closed                trips or resets the breaker
//
// The handler has no login: mount it behind your own authentication. It rejects
// requests of pages of other sites.
func (c *Controller) Admin() http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(c.serveAdmin))
}

func (c *Controller) serveAdmin(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Vary", "Accept")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		c.writeState(w, wantsJSON(r))
	case http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		if err := r.ParseForm(); err != nil {
			http.Error(w, "the form cannot be read: "+err.Error(), http.StatusBadRequest)
			return
		}
		if err := c.change(r.PostForm); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if wantsJSON(r) {
			c.writeState(w, true)
			return
		}
		h.Set("Location", "?") // this page, also if it is mounted below a prefix
		w.WriteHeader(http.StatusSeeOther)
	default:
		h.Set("Allow", "GET, HEAD, POST")
		http.Error(w, "use GET to look, POST to change", http.StatusMethodNotAllowed)
	}
}

func wantsJSON(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	return r.URL.Query().Get("format") == "json" || strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}

// change applies a form. It checks all of it before it changes anything.
func (c *Controller) change(form url.Values) error {
	var changes []func()
	add := func(change func(), err error) error {
		if err == nil {
			changes = append(changes, change)
		}
		return err
	}
	name, hasClass := form.Get("class"), form.Has("class")
	var errs []error
	for key := range form {
		value := form.Get(key)
		switch key {
		case "class", "format":
		case "shed":
			on, err := onOff(key, value)
			errs = append(errs, add(func() {
				if hasClass {
					c.ShedClass(name, on)
				} else {
					c.Shed(on)
				}
			}, err))
		case "drain":
			on, err := onOff(key, value)
			errs = append(errs, add(func() { c.setDraining(on) }, err))
		case "limit":
			n, err := number(key, value, 0)
			errs = append(errs, add(func() { c.queue.Resize(n) }, err))
		case "breaker":
			errs = append(errs, add(c.breakerChange(value)))
		case "weight", "max", "tier":
			if !hasClass {
				errs = append(errs, fmt.Errorf("%s needs a class", key))
			}
		default:
			errs = append(errs, fmt.Errorf("unknown field %q: want shed, drain, limit, breaker, class, weight, max or tier", key))
		}
	}
	if hasClass && (form.Has("weight") || form.Has("max") || form.Has("tier")) {
		share, err := c.shareOf(name, form)
		errs = append(errs, add(func() { c.queue.Set(name, share) }, err))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if len(changes) == 0 {
		return errors.New("nothing to change: want shed, drain, limit, breaker, or class with weight, max or tier")
	}
	for _, change := range changes {
		change()
	}
	c.config.Logger.Info("changed by an operator", "controller", c.config.Name, "form", form.Encode())
	return nil
}

// setDraining rejects all new requests, or admits them again, without waiting.
func (c *Controller) setDraining(on bool) {
	if !on {
		c.Resume()
		return
	}
	c.setSwitch(drainingSwitch, true)
}

func (c *Controller) breakerChange(value string) (func(), error) {
	switch {
	case c.breaker == nil:
		return nil, errors.New("the controller has no breaker")
	case value == "open":
		return c.breaker.Trip, nil
	case value == "closed":
		return c.breaker.Reset, nil
	}
	return nil, fmt.Errorf("breaker is %q: want open or closed", value)
}

// shareOf returns the share of a class with the changes of a form.
func (c *Controller) shareOf(name string, form url.Values) (share wfq.Share, err error) {
	share = c.queue.Class(name).Share()
	const mostWeight = 1_000_000
	for _, f := range []struct {
		key  string
		set  func(int64)
		most int64
	}{
		{"weight", func(n int64) { share.Weight = n }, mostWeight},
		{"max", func(n int64) { share.Max = n }, 0},
		{"tier", func(n int64) { share.Tier = int(n) }, mostWeight},
	} {
		if !form.Has(f.key) {
			continue
		}
		n, e := number(f.key, form.Get(f.key), f.most)
		if f.key == "weight" && e == nil && n == 0 {
			e = errors.New("weight is 0: want at least 1")
		}
		err = errors.Join(err, e)
		f.set(n)
	}
	if share.Max > 0 && share.Min > share.Max {
		err = errors.Join(err, fmt.Errorf("max is %d, below the guaranteed %d", share.Max, share.Min))
	}
	return share, err
}

func onOff(key, value string) (bool, error) {
	switch value {
	case "on":
		return true, nil
	case "off":
		return false, nil
	}
	return false, fmt.Errorf("%s is %q: want on or off", key, value)
}

// number parses a number of at least 0 and, unless that is 0, at most most. A tier may be as
// far below 0.
func number(key, value string, most int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	least := int64(0)
	if key == "tier" {
		least = -most
	}
	switch {
	case err == nil && n >= least && (most == 0 || n <= most):
		return n, nil
	case most == 0:
		return 0, fmt.Errorf("%s is %q: want a number from 0", key, value)
	}
	return 0, fmt.Errorf("%s is %q: want a number from %d to %d", key, value, least, most)
}

// The types below are the JSON of Admin. Their field names do not change.
type (
	adminState struct {
		Name     string           `json:"name"`
		Limit    int64            `json:"limit"`
		InFlight int64            `json:"in_flight"`
		Waiters  int              `json:"waiters"`
		Admitted int64            `json:"admitted"`
		Shed     map[string]int64 `json:"shed"`
		Degraded int64            `json:"degraded"`
		Clamped  int64            `json:"clamped"`
		Shedding bool             `json:"shedding"`
		Draining bool             `json:"draining"`
		Breaker  string           `json:"breaker,omitempty"`
		Why      *adminBreaker    `json:"breaker_details,omitempty"`
		Adaptive int64            `json:"adaptive_limit,omitempty"`
		Total    int              `json:"classes_total"`
		Classes  []adminClass     `json:"classes"`
	}
	adminBreaker struct {
		Reason  string    `json:"reason"` // of the last change; "" if there was none
		Since   time.Time `json:"since,omitzero"`
		Changes int64     `json:"changes"`
		Calls   int64     `json:"calls"` // in the window
		Failed  int64     `json:"failed"`
		Slow    int64     `json:"slow"`
	}
	adminClass struct {
		Name     string           `json:"name"`
		Weight   int64            `json:"weight"`
		Max      int64            `json:"max"`
		Tier     int              `json:"tier"`
		InFlight int64            `json:"in_flight"`
		Waiters  int              `json:"waiters"`
		Admitted int64            `json:"admitted"`
		Shed     map[string]int64 `json:"shed"`
		Shedding bool             `json:"shedding"`
	}
)

// maxAdminClasses bounds the classes of a page, those with waiters first.
const maxAdminClasses = 100

// state returns what the page shows.
func (c *Controller) state() adminState {
	st := c.Stats()
	s := adminState{
		Name: c.config.Name, Limit: st.Capacity, InFlight: st.InUse, Waiters: st.Waiters, Admitted: st.Acquired, Shed: byWord(st.Shed),
		Degraded: st.Degraded, Clamped: st.Clamped, Shedding: st.Shedding, Draining: st.Draining, Adaptive: st.Limit, Classes: []adminClass{},
	}
	if c.breaker != nil {
		b := c.breaker.Stats()
		s.Breaker = b.State.String()
		s.Why = &adminBreaker{b.Reason, b.Since, b.Changes, b.Calls, b.Failed, b.Slow}
	}
	for k := range c.classes.all {
		d := k.queue.Details()
		s.Classes = append(s.Classes, adminClass{
			Name: k.name, Weight: d.Share.Weight, Max: d.Share.Max, Tier: d.Share.Tier, InFlight: d.InUse, Waiters: d.Waiters,
			Admitted: d.Acquired, Shed: byWord(shedOf(&k.shed)), Shedding: k.shedding.Load(),
		})
	}
	slices.SortFunc(s.Classes, func(a, b adminClass) int {
		return cmp.Or(cmp.Compare(b.Waiters, a.Waiters), cmp.Compare(b.InFlight, a.InFlight), cmp.Compare(a.Name, b.Name))
	})
	s.Total = len(s.Classes)
	s.Classes = s.Classes[:min(s.Total, maxAdminClasses)]
	return s
}

func byWord(shed map[Reason]int64) map[string]int64 {
	words := map[string]int64{}
	for r, n := range shed {
		words[r.String()] = n
	}
	return words
}

//go:embed admin.html
var adminText string

//go:embed admin.css
var adminStyle string

// The page is parsed on first use, because every start of a program that imports the
// package would pay for it.
var adminTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("admin").Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(adminStyle) },
	}).Parse(adminText))
})

// adminPolicy lets the page use its own style and forms, and nothing else.
var adminPolicy = sync.OnceValue(func() string {
	sum := sha256.Sum256([]byte(adminStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
})

func (c *Controller) writeState(w http.ResponseWriter, asJSON bool) {
	var body bytes.Buffer
	var err error
	if asJSON {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(c.state())
	} else {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", adminPolicy())
		err = adminTemplate().Execute(&body, c.state())
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(body.Bytes()) // the client may have left
}
