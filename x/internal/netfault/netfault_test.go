package netfault_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/x/internal/netfault"
)

var settingNames = netfault.SettingNames{Plain: "PLAIN", Secure: "SECURE", CA: "CA", Cert: "CERT"}

// serve starts a server on loopback, with TLS if there is a configuration.
func serve(t *testing.T, secure *tls.Config) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.NotFoundHandler(), TLSConfig: secure, ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		if secure != nil {
			s.ServeTLS(l, "", "")
		} else {
			s.Serve(l)
		}
	}()
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// issued issues a certificate and loads it.
func issued(t *testing.T, issue func(storetest.TB, string) (cert, key string)) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(issue(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func pool(t *testing.T, a *storetest.Authority) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(text)
	return p
}

func TestProbe_DistinguishesFaults(t *testing.T) {
	t.Parallel()
	authority, otherCA := storetest.NewAuthority(t), storetest.NewAuthority(t)
	trusting := func(a *storetest.Authority, certs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: pool(t, a), Certificates: certs}
	}
	with := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	mutual := func(version uint16) *tls.Config {
		c := with(issued(t, authority.Issue))
		c.ClientAuth, c.ClientCAs, c.MinVersion, c.MaxVersion = tls.RequireAndVerifyClientCert, pool(t, authority), version, version
		return c
	}
	forAnother := func(t storetest.TB, name string) (cert, key string) {
		return authority.IssueFor(t, name, "db.example")
	}
	secure := serve(t, with(issued(t, authority.Issue)))
	for what, c := range map[string]struct {
		address string
		client  *tls.Config
		fault   fleet.Fault
		text    string
	}{
		"no fault with TLS":                {secure, trusting(authority), "", ""},
		"no fault without TLS":             {serve(t, nil), nil, "", ""},
		"no fault with a certificate":      {serve(t, mutual(tls.VersionTLS13)), trusting(authority, issued(t, authority.Issue)), "", ""},
		"TLS to a plain port":              {serve(t, nil), trusting(authority), fleet.FaultTLS, "does not use TLS on this port; PLAIN"},
		"plain to a TLS port":              {secure, nil, fleet.FaultTLS, "uses TLS on this port, and the client does not; SECURE"},
		"plain to a mutual TLS port":       {serve(t, mutual(tls.VersionTLS12)), nil, fleet.FaultTLS, "SECURE"},
		"wrong authority":                  {secure, trusting(otherCA), fleet.FaultTLS, "not trusted (unknown authority); set CA"},
		"expired":                          {serve(t, with(issued(t, authority.IssueExpired))), trusting(authority), fleet.FaultTLS, "has expired"},
		"another name":                     {serve(t, with(issued(t, forAnother))), trusting(authority), fleet.FaultTLS, "is for db.example, and not for 127.0.0.1"},
		"no client certificate":            {serve(t, mutual(tls.VersionTLS13)), trusting(authority), fleet.FaultTLS, "requires a client certificate (certificate required); set CERT"},
		"no client certificate, 1.2":       {serve(t, mutual(tls.VersionTLS12)), trusting(authority), fleet.FaultTLS, "requires a client certificate"},
		"certificate of another authority": {serve(t, mutual(tls.VersionTLS13)), trusting(authority, issued(t, otherCA.Issue)), fleet.FaultTLS, "rejects the client certificate"},
		"an expired certificate":           {serve(t, mutual(tls.VersionTLS13)), trusting(authority, issued(t, authority.IssueExpired)), fleet.FaultTLS, "rejects the client certificate"},
		"no server":                        {"127.0.0.1:1", nil, fleet.FaultConnection, "connection refused"},
		"a name that does not resolve":     {"nowhere.invalid:1", nil, fleet.FaultName, `name resolution failed: host "nowhere.invalid"`},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := netfault.Probe(ctx, netfault.Target{Address: c.address, TLS: c.client, Hello: "GET / HTTP/1.1\r\nHost: a\r\n\r\n"})
			if c.fault == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			explained := netfault.Explain(err, settingNames, c.client != nil && len(c.client.Certificates) > 0)
			if explained == nil || !errors.Is(explained, c.fault) || !strings.Contains(explained.Error(), c.text) {
				t.Errorf("%v is explained as %v, want %s: %s", err, explained, c.fault, c.text)
			}
		})
	}
}
