package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

// full is a store on a full disk: it can be read but not written.
type full struct {
	fleet.Store
	opens atomic.Int64
}

func (f *full) Open(context.Context, string, protocol.Config, protocol.Opener) (protocol.Session, protocol.Config, error) {
	f.opens.Add(1)
	return 0, protocol.Config{}, errors.New("database or disk is full")
}

// TestReadyz_ChecksThatTheStoreCanBeWritten checks that a store that can be read but not written
// is not ready, and that any number of probes costs one write a second.
func TestReadyz_ChecksThatTheStoreCanBeWritten(t *testing.T) {
	t.Parallel()
	store := &full{Store: memstore.New()}
	s := open(t, store, server.Options{})
	var wg sync.WaitGroup
	began := time.Now()
	for range 50 {
		wg.Go(func() {
			if a := s.want(503, "GET", "/readyz", ""); !strings.Contains(a.text, "[-] store: database or disk is full") {
				t.Error(a.text)
			}
		})
	}
	wg.Wait()
	if n, most := store.opens.Load(), int64(time.Since(began)/time.Second)+1; n > most {
		t.Errorf("%d writes in %v", n, time.Since(began))
	}
	if !strings.Contains(s.log.String(), "disk is full") {
		t.Errorf("not in the log: %s", s.log)
	}
}

// TestReadyz_IsNoSemaphore checks that the readiness check leaves no semaphore behind.
func TestReadyz_IsNoSemaphore(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(200, "GET", "/readyz", "")
	if a := s.want(200, "GET", "/v1/semaphores", ""); len(a.body["semaphores"].([]any)) != 0 {
		t.Error(a.text)
	}
}

// TestLog_DenialsAreLimited checks that a few faults and denials of each kind are logged, with the
// number of suppressed ones.
func TestLog_DenialsAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &strings.Builder{}
		s, err := server.New(&full{Store: memstore.New()}, server.Options{
			Logger: textLogger(log), Tokens: []server.Token{{Name: "look", Hash: server.HashToken("look"), Verbs: []server.Verb{server.Read}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(context.Background())
		ask := func(method, path, token string) int {
			r := httptest.NewRequest(method, path, nil)
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			return w.Code
		}
		for range 100 {
			if status := ask("GET", "/v1/semaphores", "guessed-secret"); status != 401 {
				t.Fatal(status)
			}
			if status := ask("POST", "/v1/semaphores/db/drain", "look"); status != 403 {
				t.Fatal(status)
			}
			ask("POST", semav1connect.SemaServiceDrainProcedure, "")
		}
		text := log.String()
		if n := strings.Count(text, "\n"); n < 2 || n > 12 {
			t.Errorf("%d lines: %s", n, text)
		}
		for _, part := range []string{"request rejected", "request denied", "principal=token:look", "verb=admin", "semaphore=db"} {
			if !strings.Contains(text, part) {
				t.Errorf("no %q in %s", part, text)
			}
		}
		time.Sleep(time.Minute)
		ask("DELETE", "/v1/semaphores/db/leases/secret-id", "guessed-secret")
		if text := log.String(); !strings.Contains(text, "/v1/semaphores/db/leases/…") || strings.Contains(text, "secret-id") {
			t.Errorf("want no id of a lease in %s", text)
		}
		if text := log.String(); !strings.Contains(text, "suppressed=195") || strings.Contains(text, "guessed-secret") {
			t.Error(text)
		}
	})
}

// panickingStore is a store whose Administer panics.
type panickingStore struct{ fleet.Store }

func (panickingStore) Administer(context.Context, string, fleet.Command) error {
	panic("broken: \x1b[2J")
}

// TestLog_Panic checks that a panic is logged, and ends only its own request.
func TestLog_Panic(t *testing.T) {
	t.Parallel()
	s := open(t, panickingStore{memstore.New()}, server.Options{})
	request, err := http.NewRequest("DELETE", s.url+"/v1/semaphores/db", nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := s.http.Client().Do(request); err == nil {
		response.Body.Close()
		t.Errorf("response: %s", response.Status)
	}
	s.want(200, "GET", "/livez", "")
	if text := s.log.String(); !strings.Contains(text, "a request panicked") || !strings.Contains(text, "Administer") || strings.Contains(text, "\x1b") {
		t.Error(text)
	}
	if !s.metric("sema_panics_total 1") {
		t.Error("the panic is not counted")
	}
}

// TestAudit_ControlCharacters checks that texts of administrators are logged without control
// characters and line breaks.
func TestAudit_ControlCharacters(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	s.want(400, "POST", "/v1/semaphores/db/leases/1/revoke", `{"why": "x \u001b[2J\r\n\u009b31m level=INFO msg=audit who=ceo"}`)
	if text := s.log.String(); strings.ContainsAny(text, "\x1b\r\u009b") || strings.Contains(text, "\nlevel") {
		t.Errorf("%q", text)
	}
}

// TestHeaders_NoSniff checks that browsers do not guess the type of a reply.
func TestHeaders_NoSniff(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for _, path := range []string{"/", "/livez", "/readyz", "/metrics", "/openapi.json", "/v1/semaphores", "/v1/semaphores/none", "/nowhere", "/ui/", "/ui/nowhere", semav1connect.SemaServiceListProcedure} {
		response, err := s.http.Client().Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, response.Header)
		}
	}
}

// TestHost_Rebinding checks DNS rebinding: a page whose name resolves to a server's address sends
// that name. If no token is required, only names that no public site can have are accepted.
func TestHost_Rebinding(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Hosts: []string{"sema.example.com"}})
	guarded := start(t, server.Options{Tokens: []server.Token{all("a")}})
	ask := func(s *site, host, local string, secured bool) int {
		r := httptest.NewRequest("GET", "/v1/semaphores", nil)
		r.Host = host
		r.Header.Set("Authorization", "Bearer a")
		if secured {
			r.TLS = &tls.ConnectionState{}
		}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(local), Port: 7362}))
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	for host, want := range map[string]int{
		"evil.example": 403, "evil.example:7362": 403, "EVIL.example.": 403, "": 200, "192.168.1.5:7362": 200, "[fe80::1]:7362": 200, "sema:7362": 200,
		"sema.default.svc.cluster.local": 200, "sema.default.svc": 200, "sema.corp.internal": 200, "sema.example.com:7362": 200, "Sema.Example.com": 200, "localhost": 200,
	} {
		if got := ask(s, host, "192.168.1.5", false); got != want {
			t.Errorf("%q: %d, want %d", host, got, want)
		}
	}
	if got := ask(s, "sema", "127.0.0.1", false); got != 403 {
		t.Errorf("on loopback: %d", got)
	}
	if got := ask(s, "evil.example", "192.168.1.5", true); got != 200 {
		t.Errorf("with TLS: %d", got)
	}
	if got := ask(guarded, "evil.example", "192.168.1.5", false); got != 200 {
		t.Errorf("with a token: %d", got)
	}
}

// TestLimits_Reads checks that replies that are not read are bounded, per principal and in total.
func TestLimits_Reads(t *testing.T) {
	t.Parallel()
	store := &slow{Store: memstore.New(), asked: make(chan struct{}, 100), release: make(chan struct{})}
	s := open(t, store, server.Options{Tokens: []server.Token{all("a"), all("b"), all("c")}, Limits: server.Limits{Reads: 16}})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(store.release)
	body := func(name string) string { return `{"name":"` + name + `"}` }
	s.auth = "a"
	wg.Go(func() { s.connect(semav1connect.StoreServiceInspectProcedure, body("one")) }) // weighs 8, half of 16
	<-store.asked
	if status, text := s.connect(semav1connect.StoreServiceInspectProcedure, body("two")); status != http.StatusTooManyRequests || !strings.Contains(text, "limits.reads") {
		t.Errorf("%d %s", status, text)
	}
	s.want(429, "GET", "/v1/semaphores/three", "")
	other := *s
	other.auth = "b"
	wg.Go(func() { other.connect(semav1connect.StoreServiceInspectProcedure, body("four")) })
	<-store.asked // another tenant reads in the meantime
	s.auth = "c"
	s.want(429, "GET", "/v1/semaphores/five", "") // the server's limit is reached
}

// slow is a store that replies when its release channel is closed.
type slow struct {
	fleet.Store
	asked, release chan struct{}
}

func (s *slow) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	s.asked <- struct{}{}
	<-s.release // ignores ctx, or the server would stop waiting
	return s.Store.Inspect(ctx, name)
}

// unread is a client that does not read until its release channel is closed.
type unread struct {
	*httptest.ResponseRecorder
	writing, release chan struct{}
}

func (s *unread) Write(b []byte) (int, error) {
	s.writing <- struct{}{}
	<-s.release
	return 0, errors.New("gone")
}

// TestLimits_ReadsOfWatchers checks that what a watcher has not read yet counts as being sent.
func TestLimits_ReadsOfWatchers(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{all("a"), all("b")}, Limits: server.Limits{Reads: 2}})
	s.auth = "a"
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	w := &unread{httptest.NewRecorder(), make(chan struct{}, 1), make(chan struct{})}
	r := httptest.NewRequest("GET", "/v1/semaphores/db/watch", nil)
	r.Header.Set("Authorization", "Bearer a")
	ended := make(chan struct{})
	go func() { defer close(ended); s.ServeHTTP(w, r) }()
	<-w.writing
	if a := s.want(429, "GET", "/v1/semaphores/db", ""); !strings.Contains(a.text, "limits.reads") {
		t.Error(a.text)
	}
	s.auth = "b"
	s.want(200, "GET", "/v1/semaphores/db", "")
	close(w.release)
	<-ended
	s.auth = "a"
	s.want(200, "GET", "/v1/semaphores/db", "")
}
