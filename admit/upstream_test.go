package admit_test

import (
	"bytes"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// headers returns a header with names and values.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// TestLimitsOf_ReadsTheFormsOfProviders: the formats are those that the providers document.
func TestLimitsOf_ReadsTheFormsOfProviders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // 2000-01-01 00:00:00 UTC
		now := time.Now()
		in := func(d time.Duration) time.Time { return now.Add(d) }
		for name, c := range map[string]struct {
			headers http.Header
			want    admit.Limits
		}{
			"none":                {nil, admit.Limits{}},
			"seconds":             {headers("Retry-After", "20"), admit.Limits{RetryAfter: 20 * time.Second}},
			"a fraction":          {headers("retry-after", "7.66"), admit.Limits{RetryAfter: 7660 * time.Millisecond}},
			"a date":              {headers("Retry-After", in(time.Minute).UTC().Format(http.TimeFormat)), admit.Limits{RetryAfter: time.Minute}},
			"milliseconds":        {headers("retry-after-ms", "1500", "Retry-After", "2"), admit.Limits{RetryAfter: 1500 * time.Millisecond}},
			"a date that is past": {headers("Retry-After", in(-time.Minute).UTC().Format(http.TimeFormat)), admit.Limits{}},
			"requests and tokens": {headers("x-ratelimit-remaining-requests", "59", "x-ratelimit-reset-requests", "1s", "x-ratelimit-remaining-tokens", "149984", "x-ratelimit-reset-tokens", "6m0s"),
				admit.Limits{Requests: admit.Remaining{Known: true, N: 59, Reset: time.Second}, Tokens: admit.Remaining{Known: true, N: 149984, Reset: 6 * time.Minute}}},
			"milliseconds with a unit": {headers("x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "120ms"),
				admit.Limits{Requests: admit.Remaining{Known: true, N: 0, Reset: 120 * time.Millisecond}}},
			"dates of RFC 3339": {headers("anthropic-ratelimit-requests-remaining", "7", "anthropic-ratelimit-requests-reset", in(30*time.Second).UTC().Format(time.RFC3339),
				"anthropic-ratelimit-input-tokens-remaining", "40000", "anthropic-ratelimit-input-tokens-reset", in(time.Second).UTC().Format(time.RFC3339),
				"anthropic-ratelimit-output-tokens-remaining", "8000", "anthropic-ratelimit-output-tokens-reset", in(12*time.Second).Format(time.RFC3339)),
				admit.Limits{Requests: admit.Remaining{Known: true, N: 7, Reset: 30 * time.Second}, Tokens: admit.Remaining{Known: true, N: 8000, Reset: 12 * time.Second}}},
			"Unix seconds": {headers("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(in(90*time.Second).Unix())),
				admit.Limits{}}, // in the year 2000 that is below what counts as a Unix time; see below
			"seconds of the draft": {headers("RateLimit-Remaining", "3", "RateLimit-Reset", "50"), admit.Limits{Requests: admit.Remaining{Known: true, N: 3, Reset: 50 * time.Second}}},
			"what cannot be parsed": {headers("Retry-After", "soon", "x-ratelimit-remaining-requests", "many", "x-ratelimit-remaining-tokens", "5", "x-ratelimit-reset-tokens", "NaN"),
				admit.Limits{Tokens: admit.Remaining{Known: true, N: 5}}},
			"huge": {headers("Retry-After", "1e300"), admit.Limits{}},
		} {
			got := admit.LimitsOf(c.headers)
			switch name {
			case "Unix seconds":
				if !got.Requests.Known || got.Requests.N != 0 {
					t.Errorf("%s: %+v", name, got)
				}
			case "huge":
				if got.RetryAfter < 0 {
					t.Errorf("%s: %+v", name, got)
				}
			default:
				if got != c.want {
					t.Errorf("%s: %+v, want %+v", name, got, c.want)
				}
			}
		}
	})
}

func unix(n int64) string { return strconv.FormatInt(n, 10) }

// TestLimitsOf_UnixTimes runs outside of a bubble, where the year is not 2000.
func TestLimitsOf_UnixTimes(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(time.Hour)
	for _, text := range []string{unix(at.Unix()), unix(at.UnixMilli())} {
		got := admit.LimitsOf(headers("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", text)).Requests
		if got.Reset < 58*time.Minute || got.Reset > time.Hour {
			t.Errorf("%s: %v, want an hour", text, got.Reset)
		}
	}
}

// TestTransport_ObeysWhatAResponseStates: which responses pause what, and for how long.
func TestTransport_ObeysWhatAResponseStates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status       int
		headers      http.Header
		rate, budget time.Duration // of the pauses
	}{
		"plenty":                       {200, headers("x-ratelimit-remaining-requests", "1", "x-ratelimit-reset-requests", "60s", "x-ratelimit-remaining-tokens", "10", "x-ratelimit-reset-tokens", "60s"), 0, 0},
		"no requests left":             {200, headers("x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "20s"), 20 * time.Second, 0},
		"fewer tokens than it cost":    {200, headers("x-ratelimit-remaining-tokens", "9", "x-ratelimit-reset-tokens", "20s"), 0, 20 * time.Second},
		"rejected":                     {429, headers("Retry-After", "30"), 30 * time.Second, 0},
		"Retry-After of a success":     {200, headers("Retry-After", "30"), 0, 0},
		"rejected, with a later reset": {429, headers("Retry-After", "30", "x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "40s"), 40 * time.Second, 0},
		"a day":                        {503, headers("Retry-After", "86400"), time.Hour, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := fleet.New(memstore.New())
			defer store.Close(t.Context())
			of := func(name string) *fleet.Semaphore {
				s, err := store.Semaphore(name, 100, fleet.Rate(2*time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			for scope, limits := range map[string][2]rate.Limiter{
				"process": {rate.New(100, time.Second), rate.New(100, time.Second)}, "fleet": {of("requests"), of("tokens")},
			} {
				ctl := admit.New(admit.Config{Rate: limits[0], Budget: limits[1], Logger: quiet})
				tr := admit.HTTP{Controller: ctl, Cost: func(*http.Request) int64 { return 10 }}.Transport(
					roundTripper(func(*http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: c.status, Header: c.headers, Body: http.NoBody}, nil
					}))
				resp, err := tr.RoundTrip(httptest.NewRequest("GET", "/", nil))
				if err != nil {
					t.Fatal(err)
				}
				for i, want := range []time.Duration{c.rate, c.budget} {
					if d := limits[i].Delay(1); d > want+time.Millisecond || d < want-time.Second {
						t.Errorf("%s, %s: limiter %d is paused for %v, want %v", name, scope, i, d, want)
					}
				}
				// A later response does not shorten the pause.
				ctl.Obey(&http.Response{StatusCode: 429, Header: headers("Retry-After", "1")})
				if d := limits[0].Delay(1); d < c.rate-time.Second || d == 0 {
					t.Errorf("%s, %s: paused for %v after a shorter Retry-After", name, scope, d)
				}
				admit.SettleResponse(resp, 3)
				admit.SettleResponse(resp, 50) // only the first one counts
				admit.SettleResponse(resp, -1)
				if scope == "process" {
					if free := limits[1].(*rate.Gate).Stats().Free; free != 97 {
						t.Errorf("%s: %d of the budget free, want 97", name, free)
					}
				}
			}
			admit.SettleResponse(&http.Response{}, 1)
			admit.SettleResponse(nil, 1)
			time.Sleep(3 * time.Hour)
		})
	}
}

// TestController_ClampsToAFleetRate: a cost above the limit, which may have been lowered, locks
// no class out, and is counted.
func TestController_ClampsToAFleetRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fleet.New(memstore.New())
		defer client.Close(t.Context())
		budget, err := client.Semaphore("tokens", 100, fleet.Rate(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		c := admit.New(admit.Config{Budget: budget, Logger: quiet})
		a := mustAdmit(t, c, admit.Request{Cost: 1000})
		a.Settle(0)
		a.Done(admit.OK)
		if err := budget.Resize(t.Context(), 50); err != nil {
			t.Fatal(err)
		}
		a, err = c.TryAdmit(t.Context(), admit.Request{Cost: 100})
		if err != nil || c.Stats().Clamped != 2 {
			t.Errorf("%v, %d clamped", err, c.Stats().Clamped)
		}
		_, err = c.TryAdmit(t.Context(), admit.Request{Cost: 100})
		if r := wantReason(t, err, admit.ReasonBudget); r.RetryAfter < 30*time.Second || r.RetryAfter == math.MaxInt64 {
			t.Errorf("retry after %v", r.RetryAfter)
		}
		a.Done(admit.OK)
	})
}

// TestController_LogsChangesOfTheBreaker with their reasons, at a limited rate, and shows them.
func TestController_LogsChangesOfTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelInfo}))
		b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 4, OpenFor: time.Second, Probes: 1})
		c := admit.New(admit.Config{Name: "api", Queue: wfq.New(1), Breaker: b, Logger: logger})
		fail := func() {
			for range 4 {
				if a, err := c.Admit(t.Context(), admit.Request{}); err == nil {
					a.Done(admit.Failed)
				}
			}
		}
		fail()
		want := `level=WARN msg="breaker changed" controller=api from=closed to=open reason="of 4 calls in 10s, 4 failed and 0 were slow" changes=1`
		if !strings.Contains(text.String(), want) {
			t.Fatalf("logged\n%swant %s", text.String(), want)
		}
		w := httptest.NewRecorder()
		c.Admin().ServeHTTP(w, httptest.NewRequest("GET", "/?format=json", nil))
		for _, part := range []string{`"breaker": "open"`, `"reason": "of 4 calls in 10s, 4 failed and 0 were slow"`, `"since": "2000-01-01T00:00:00`, `"changes": 1`, `"failed": 4`} {
			if !strings.Contains(w.Body.String(), part) {
				t.Errorf("JSON without %s: %s", part, w.Body)
			}
		}
		w = httptest.NewRecorder()
		c.Admin().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if !strings.Contains(w.Body.String(), "4 of 4 calls in its window failed") {
			t.Errorf("page: %s", w.Body)
		}
		for range 6 { // flapping: opens and is half-open many times
			time.Sleep(500 * time.Millisecond)
			b.Reset()
			b.Trip()
		}
		text.Reset()
		time.Sleep(10 * time.Second)
		b.Reset()
		if got := strings.Count(text.String(), "breaker changed"); got != 1 || !strings.Contains(text.String(), `to=closed reason="an operator has reset it" changes=6`) {
			t.Errorf("logged\n%s", text.String())
		}
		time.Sleep(10 * time.Second)
		fail()
		time.Sleep(time.Second)
		mustAdmit(t, c, admit.Request{}).Done(admit.OK)
		for _, part := range []string{`to=open reason="of 4 calls`, `to=half-open reason="it was open for 1s"`} {
			if !strings.Contains(text.String(), part) {
				t.Errorf("logged without %s:\n%s", part, text.String())
			}
		}
		if st := b.Stats(); st.Reason != "1 probes succeeded" || st.State != admit.Closed || st.Changes != 17 {
			t.Errorf("%+v", st)
		}
	})
}
