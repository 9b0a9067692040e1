package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/x/server"
)

// all returns a token that may do everything. Its secret is its name.
func all(name string) server.Token {
	return server.Token{Name: name, Hash: server.HashToken(name), Verbs: server.Verbs()}
}

func TestToken_InvalidConfiguration(t *testing.T) {
	t.Parallel()
	long := func(change func(*server.Token)) server.Token {
		token := all("b")
		change(&token)
		return token
	}
	for want, second := range map[string]server.Token{
		`two tokens are named "a"`:     long(func(t *server.Token) { t.Name = "a" }),
		"have the same hash":           long(func(t *server.Token) { t.Hash = server.HashToken("a") }),
		"the same hash":                long(func(t *server.Token) { t.Hashes = []string{server.HashToken("a")} }),
		"verbs: [read, acquire, admin": long(func(t *server.Token) { t.Verbs = nil }),
		`unknown verb "dance"`:         long(func(t *server.Token) { t.Verbs = []server.Verb{"dance"} }),
		"64 hexadecimal digits":        long(func(t *server.Token) { t.Hashes = []string{"sha256:12"} }),
		"unprintable characters":       long(func(t *server.Token) { t.Name = "b\x1b[2J" }),
		"prefix":                       long(func(t *server.Token) { t.Prefix = "a b" }),
		"limits.held":                  long(func(t *server.Token) { t.Limits.Held = -1 }),
	} {
		s, err := server.New(memstore.New(), server.Options{Tokens: []server.Token{all("a"), second}})
		if err == nil {
			s.Close(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := server.New(memstore.New(), server.Options{Limits: server.Limits{Waiting: -1}}); err == nil || !strings.Contains(err.Error(), "limits.waiting") {
		t.Errorf("%v", err)
	}
}

// TestToken_Rotation checks that a lease and its idempotency key belong to the name of a token:
// they survive a new token with that name, and no other name shares them.
func TestToken_Rotation(t *testing.T) {
	t.Parallel()
	a := all("a")
	a.Hashes = []string{server.HashToken("a2")}
	s := start(t, server.Options{Tokens: []server.Token{a, all("b")}})
	ask := func(token string) string {
		s.auth = token
		return s.want(201, "POST", "/v1/semaphores/db/leases?capacity=5", "", header{"Idempotency-Key", "1"}).lease()
	}
	first := ask("a")
	if ask("a2") != first {
		t.Error("the new token has another lease under the same key")
	}
	if ask("b") == first {
		t.Error("another principal has the lease")
	}
	if err := s.SetTokens([]server.Token{{Name: "a", Hash: server.HashToken("a2"), Verbs: server.Verbs()}, all("c")}); err != nil {
		t.Fatal(err)
	}
	if ask("a2") != first {
		t.Error("the lease was lost with the old token")
	}
	s.want(200, "PUT", "/v1/semaphores/db/leases/"+first, "")
	for _, gone := range []string{"a", "b"} {
		s.auth = gone
		s.want(401, "GET", "/v1/semaphores", "")
	}
	s.auth = "c"
	s.want(200, "GET", "/v1/semaphores", "")
	for _, bad := range [][]server.Token{nil, {all("c"), all("c")}} {
		if s.SetTokens(bad) == nil {
			t.Errorf("%v was accepted", bad)
		}
		s.want(200, "GET", "/v1/semaphores", "")
	}
}

// chainOf returns a client certificate and the authority that signed it.
func chainOf(t *testing.T, authority string, subject pkix.Name, uris ...string) []*x509.Certificate {
	t.Helper()
	issue := func(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if parent == nil {
			parent, parentKey = template, key
		}
		raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
		if err != nil {
			t.Fatal(err)
		}
		made, err := x509.ParseCertificate(raw)
		if err != nil {
			t.Fatal(err)
		}
		return made, key
	}
	root, key := issue(&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: authority}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}, nil, nil)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: subject, NotAfter: time.Now().Add(time.Hour)}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		leaf.URIs = append(leaf.URIs, u)
	}
	made, _ := issue(leaf, root, key)
	return []*x509.Certificate{made, root}
}

func TestCertificate_Identity(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	lease := func(chain []*x509.Certificate) (int, string) {
		r := httptest.NewRequest("POST", "/v1/semaphores/db/leases?capacity=50", nil)
		r.Header.Set("Idempotency-Key", "1")
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{chain}}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	laptop := pkix.Name{CommonName: "laptop"}
	chains := map[string][]*x509.Certificate{
		"a common name":                              chainOf(t, "A", laptop),
		"the same of another authority":              chainOf(t, "A", laptop), // only the name is the same, the key differs
		"a URI with the same common name":            chainOf(t, "A", laptop, "spiffe://example/laptop"),
		"a URN":                                      chainOf(t, "A", laptop, "urn:example:laptop"),
		"a common name with colons":                  chainOf(t, "A", pkix.Name{CommonName: "system:node:laptop"}),
		"a name that looks like an idempotency mark": chainOf(t, "A", pkix.Name{CommonName: "x key=0123 y"}),
	}
	seen := map[string]string{}
	for what, chain := range chains {
		status, body := lease(chain)
		if status != http.StatusCreated {
			t.Errorf("%s: %d %s", what, status, body)
		}
		id := strings.Split(body, `"weight"`)[0]
		if other, known := seen[id]; known {
			t.Errorf("%s and %s share a lease", what, other)
		}
		seen[id] = what
		if again, repeated := lease(chain); again != http.StatusCreated || !strings.HasPrefix(repeated, id) {
			t.Errorf("%s: the key is lost: %s, then %s", what, body, repeated)
		}
	}
	for want, chain := range map[string][]*x509.Certificate{
		"neither a URI SAN nor a common name": chainOf(t, "A", pkix.Name{Organization: []string{"O"}}),
		"put it into a URI SAN":               chainOf(t, "A", pkix.Name{CommonName: "spiffe://example/laptop"}),
		"is a URI; put it into a URI SAN":     chainOf(t, "A", pkix.Name{CommonName: "URN:example:laptop"}),
		"want a URN, or a URI with ://":       chainOf(t, "A", laptop, "mailto:laptop@example"),
		"unprintable characters":              chainOf(t, "A", pkix.Name{CommonName: "a\x07"}),
	} {
		if status, body := lease(chain); status != http.StatusForbidden || !strings.Contains(body, want) {
			t.Errorf("%d %s, want %q", status, body, want)
		}
	}
	if text := s.want(200, "GET", "/v1/semaphores/db", "").text; strings.Contains(text, " key=0123 ") {
		t.Errorf("a name is used as a mark: %s", text)
	}
}

// TestRevoke_ByCannotBeForged checks that a Go client cannot choose the name that a revocation
// records.
func TestRevoke_ByCannotBeForged(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{all("ops"), all("app")}})
	app, ops := s.dial("?token=app"), s.dial("?token=ops")
	db, err := app.Semaphore("db", 1)
	if err != nil {
		t.Fatal(err)
	}
	p, err := db.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	info, err := ops.Info(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	if err := ops.Revoke(t.Context(), "db", fleet.Revocation{Lease: info.Holders[0].Lease, By: "the-ceo", Why: "because"}); err != nil {
		t.Fatal(err)
	}
	<-p.Lost()
	if why := p.Err().Error(); !strings.Contains(why, "by ops") || strings.Contains(why, "the-ceo") {
		t.Error(why)
	}
}

// TestOpen_ServersKindIsReserved checks that clients cannot use the kind of servers' sessions:
// servers continue each other's sessions.
func TestOpen_ServersKindIsReserved(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	status, text := s.connect("/sema.v1.StoreService/Open", `{"name":"db","key":"c2l4dGVlbi1ieXRlcyEhIQ==","config":{"capacity":1,"ttl":"1000000"},"client":{"instance":"eA==","kind":"c2VydmljZQ=="}}`) // of kind service
	if status != http.StatusBadRequest || !strings.Contains(text, "reserved") {
		t.Errorf("%d %s", status, text)
	}
}
