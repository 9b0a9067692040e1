package admit_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/wfq"
)

// post sends a form to the admin page and returns the response.
func post(c *admit.Controller, form string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/admin", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	c.Admin().ServeHTTP(w, r)
	return w
}

func TestAdmin_ChangesSwitchesLimitsAndWeights(t *testing.T) {
	t.Parallel()
	q := wfq.New(10)
	b := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Hour})
	c := admit.New(admit.Config{Name: "api", Queue: q, Breaker: b, Logger: quiet})
	change := func(form string) {
		t.Helper()
		if w := post(c, form); w.Code != http.StatusSeeOther {
			t.Fatalf("%s: %d %s", form, w.Code, w.Body)
		}
	}
	change("shed=on")
	_, err := c.Admit(t.Context(), admit.Request{})
	wantReason(t, err, admit.ReasonShedding)
	change("shed=off&limit=3")
	if c.Stats().Shedding || c.Stats().Capacity != 3 {
		t.Errorf("%v", c.Stats())
	}
	change("class=paid&weight=4&max=2&tier=-1")
	if s := q.Class("paid").Share(); s.Weight != 4 || s.Max != 2 || s.Tier != -1 {
		t.Errorf("%+v", s)
	}
	change("class=paid&weight=5")
	if s := q.Class("paid").Share(); s.Weight != 5 || s.Max != 2 {
		t.Errorf("a field that is absent has changed: %+v", s)
	}
	change("class=paid&shed=on")
	_, err = c.Admit(t.Context(), admit.Request{Class: "paid"})
	wantReason(t, err, admit.ReasonShedding)
	change("breaker=open")
	_, err = c.Admit(t.Context(), admit.Request{})
	wantReason(t, err, admit.ReasonBreaker)
	change("breaker=closed&drain=on")
	_, err = c.Admit(t.Context(), admit.Request{})
	wantReason(t, err, admit.ReasonDraining)
	change("drain=off")
	mustAdmit(t, c, admit.Request{}).Done(admit.OK)
}

func TestAdmin_RejectsBadFormsWhole(t *testing.T) {
	t.Parallel()
	q := wfq.New(10)
	c := admit.New(admit.Config{Queue: q, Logger: quiet})
	for _, form := range []string{"", "shed=maybe", "limit=-1", "limit=x", "shed=on&nonsense=1", "weight=3", "class=a&weight=0", "class=a&weight=9999999999", "breaker=open", "limit=5&shed=perhaps"} {
		w := post(c, form)
		if strings.Contains(form, "99") && !strings.Contains(w.Body.String(), "from 0 to 1000000") {
			t.Errorf("%q: %s does not state the most", form, w.Body)
		}
		if w.Code != http.StatusBadRequest || w.Body.Len() == 0 {
			t.Errorf("%q: %d %s", form, w.Code, w.Body)
		}
	}
	if st := c.Stats(); st.Capacity != 10 || st.Shedding {
		t.Errorf("a form that was rejected has changed something: %v", st)
	}
	if w := post(c, "shed=on", "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusForbidden || c.Stats().Shedding {
		t.Errorf("a page of another site may change switches: %d", w.Code)
	}
	r := httptest.NewRequest(http.MethodDelete, "/admin", nil)
	w := httptest.NewRecorder()
	c.Admin().ServeHTTP(w, r)
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
		t.Errorf("%d", w.Code)
	}
}

func TestAdmin_ShowsTheState(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Name: "<script>api", Queue: wfq.New(1), Logger: quiet})
	a := mustAdmit(t, c, admit.Request{Class: "<b>x"})
	defer a.Done(admit.OK)
	c.TryAdmit(t.Context(), admit.Request{Class: "<b>x"}) //semavet:ignore it is rejected
	get := func(target, accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		c.Admin().ServeHTTP(w, r)
		return w
	}
	page := get("/admin", "text/html")
	if body := page.Body.String(); strings.Contains(body, "<script>") || strings.Contains(body, "<b>") || !strings.Contains(body, "1 of 1 in flight") || page.Header().Get("Content-Security-Policy") == "" {
		t.Errorf("%s", body)
	}
	for _, w := range []*httptest.ResponseRecorder{get("/admin?format=json", "*/*"), get("/admin", "application/json"), post(c, url.Values{"shed": {"off"}}.Encode(), "Accept", "application/json")} {
		var state struct {
			Name     string
			Limit    int64
			InFlight int64 `json:"in_flight"`
			Shed     map[string]int64
			Classes  []struct{ Name string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil {
			t.Fatal(err, w.Body)
		}
		if state.Name != "<script>api" || state.Limit != 1 || state.InFlight != 1 || state.Shed["full"] != 1 || len(state.Classes) != 1 {
			t.Errorf("%s", w.Body)
		}
	}
}

// TestAdmin_RedirectsToItself mounts the page below a prefix that its handler does not see.
func TestAdmin_RedirectsToItself(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Logger: quiet})
	mux := http.NewServeMux()
	mux.Handle("/ops/admit/", http.StripPrefix("/ops/admit", c.Admin()))
	s := httptest.NewServer(mux)
	defer s.Close()
	resp, err := s.Client().PostForm(s.URL+"/ops/admit/?x=1", url.Values{"shed": {"on"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Request.Method != http.MethodGet || resp.Request.URL.Path != "/ops/admit/" {
		t.Errorf("%d from %s %s", resp.StatusCode, resp.Request.Method, resp.Request.URL)
	}
}
