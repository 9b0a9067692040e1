package server_test

import (
	"bufio"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
)

// A page is a response of the dashboard.
type page struct {
	status int
	header http.Header
	text   string
}

// A tab is a browser without scripts. It keeps cookies, and does not follow redirects.
type tab struct {
	*site
	browser *http.Client
}

func (s *site) tab() *tab {
	jar, _ := cookiejar.New(nil)
	transport := &http.Transport{}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &tab{s, &http.Client{Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (b *tab) send(method, path string, form url.Values, headers ...header) page {
	b.t.Helper()
	request, err := http.NewRequest(method, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		if h.key == "Host" {
			request.Host = h.value
		}
		request.Header.Set(h.key, h.value)
	}
	response, err := b.browser.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return page{response.StatusCode, response.Header, string(raw)}
}

func (b *tab) get(status int, path string, headers ...header) page {
	b.t.Helper()
	return b.wants(status, b.send("GET", path, nil, headers...), "GET "+path)
}

func (b *tab) post(status int, path string, form url.Values, headers ...header) page {
	b.t.Helper()
	return b.wants(status, b.send("POST", path, form, headers...), "POST "+path)
}

func (b *tab) wants(status int, p page, what string) page {
	b.t.Helper()
	if p.status != status {
		b.t.Fatalf("%s: status %d, want %d: %s", what, p.status, status, p.text)
	}
	return p
}

// contains fails unless a page contains all texts, HTML-escaped.
func (p page) contains(t *testing.T, all ...string) {
	t.Helper()
	for _, text := range all {
		if !strings.Contains(p.text, html.EscapeString(text)) && !strings.Contains(html.UnescapeString(p.text), text) {
			t.Errorf("the page has no %q:\n%s", text, p.text)
		}
	}
}

// form returns the values that a button sends.
func form(pairs ...string) url.Values {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return values
}

// live opens the stream of a page. next returns the next change, without heartbeats.
func (b *tab) live(query string) (next func() liveChange, end func()) {
	b.t.Helper()
	response, err := b.browser.Get(b.url + "/ui/live?" + query)
	if err != nil || response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" {
		b.t.Fatal(response, err)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return func() (c liveChange) {
		for alive := false; lines.Scan(); {
			if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				alive = event == "alive"
			}
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok && !alive {
				if err := json.Unmarshal([]byte(text), &c); err != nil {
					b.t.Fatal(err, text)
				}
				return c
			}
		}
		c.ended = true
		return c
	}, func() { response.Body.Close() }
}

type liveChange struct {
	Live  bool
	Parts map[string]string
	Lists map[string][]string
	ended bool
}
