package storetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// An Authority signs certificates for servers on loopback and for their clients.
type Authority struct {
	File string // contains the authority's own certificate

	directory   string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority creates an authority. Its files are removed when t ends.
func NewAuthority(t TB) *Authority {
	t.Helper()
	a := &Authority{directory: Directory(t, ""), key: newKey(t)}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw := sign(t, template, template, &a.key.PublicKey, a.key)
	a.File = a.write(t, "ca.pem", "CERTIFICATE", raw)
	var err error
	if a.certificate, err = x509.ParseCertificate(raw); err != nil {
		t.Fatalf("parse a certificate: %v", err)
	}
	return a
}

// Issue creates a certificate and its key, and returns the paths of their
// files.
func (a *Authority) Issue(t TB, name string) (cert, key string) {
	t.Helper()
	return a.issue(t, name, x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
}

// IssueExpired creates a certificate that expired a minute ago.
func (a *Authority) IssueExpired(t TB, name string) (cert, key string) {
	t.Helper()
	return a.issue(t, name, x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(-time.Minute)})
}

// IssueFor creates a certificate for a host that is not on loopback.
func (a *Authority) IssueFor(t TB, name, host string) (cert, key string) {
	t.Helper()
	return a.issue(t, name, x509.Certificate{DNSNames: []string{host}})
}

func (a *Authority) issue(t TB, name string, template x509.Certificate) (cert, key string) {
	t.Helper()
	secret := newKey(t)
	template.Subject = pkix.Name{CommonName: name}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	raw := sign(t, &template, a.certificate, &secret.PublicKey, a.key)
	encoded, err := x509.MarshalECPrivateKey(secret)
	if err != nil {
		t.Fatalf("encode a key: %v", err)
	}
	return a.write(t, name+".pem", "CERTIFICATE", raw), a.write(t, name+".key", "EC PRIVATE KEY", encoded)
}

// Client returns the configuration of a client with a certificate of its own.
func (a *Authority) Client(t TB) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(a.Issue(t, "storetest"))
	if err != nil {
		t.Fatalf("load a certificate: %v", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
}

func newKey(t TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("generate a key: %v", err)
	}
	return key
}

func sign(t TB, template, parent *x509.Certificate, public *ecdsa.PublicKey, signer *ecdsa.PrivateKey) (raw []byte) {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		t.Fatalf("sign a certificate: %v", err)
	}
	return raw
}

func (a *Authority) write(t TB, name, kind string, content []byte) string {
	t.Helper()
	path := filepath.Join(a.directory, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		t.Fatalf("write a certificate: %v", err)
	}
	return path
}
