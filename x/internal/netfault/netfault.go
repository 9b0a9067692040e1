// Package netfault explains why a server cannot be reached: which of name
// resolution, connection and TLS failed, and what to do about it.
package netfault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sema-go/sema/fleet"
)

// Words are how the settings of a store are named in its URL.
type Words struct {
	Plain  string // what to do where the server does not use TLS: "use sema://"
	Secure string // where it does: "use semas://"
	CA     string // the file of the authority: "ca="
	Cert   string // the files of a client certificate: "cert= and key="
	Name   string // what else can be done about a certificate for another name; may be empty
}

// An Error is the explanation of an error.
type Error struct {
	Fault fleet.Fault
	Text  string
	Cause error
}

// Error implements error. The text of the cause is not part of it: it may have
// settings in it.
func (e *Error) Error() string { return e.Text }

// Unwrap has [errors.Is] find the fault and the cause.
func (e *Error) Unwrap() []error { return []error{e.Fault, e.Cause} }

// What [Probe] finds.
var (
	ErrPlain  = errors.New("the server does not use TLS on this port")
	ErrSecure = errors.New("the server uses TLS on this port")
)

// Explain returns the explanation of an error, or nil if it is not about the way to
// a server. It is told whether the client has a certificate of its own.
func Explain(err error, w Words, hasCert bool) *Error {
	if err == nil {
		return nil
	}
	if fault := explainTLS(err, w, hasCert); fault != "" {
		return &Error{fleet.FaultTLS, fault, err}
	}
	var resolve *net.DNSError
	explained := func(f fleet.Fault, format string, args ...any) *Error {
		return &Error{f, fmt.Sprintf(format, args...), err}
	}
	switch {
	case errors.As(err, &resolve) && resolve.IsNotFound:
		return explained(fleet.FaultName, "name resolution failed: host %q is not known; check its name", resolve.Name)
	case errors.As(err, &resolve):
		return explained(fleet.FaultName, "name resolution failed: host %q: %s; check the resolver (DNS)", resolve.Name, resolve.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return explained(fleet.FaultConnection, "connection refused; is it running?")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return explained(fleet.FaultConnection, "there is no route to it; check the address and the network")
	case isDial(err) && isTimeout(err):
		return explained(fleet.FaultConnection, "connection timed out; check the address and the firewall")
	}
	return nil
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// explainTLS returns "" if an error is not about TLS.
func explainTLS(err error, w Words, hasCert bool) string {
	var (
		record    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		other     *tls.CertificateVerificationError
	)
	switch {
	case errors.Is(err, ErrSecure):
		return "TLS failed: " + ErrSecure.Error() + ", and the client does not; " + w.Secure
	case errors.Is(err, ErrPlain), errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "TLS failed: " + ErrPlain.Error() + "; " + w.Plain
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		return explainValidity(invalid.Cert)
	case errors.As(err, &name):
		text := fmt.Sprintf("TLS failed: the server's certificate is for %s, and not for %s; use one of its names in the URL, or a certificate for this one", namesOf(name.Certificate), name.Host)
		if w.Name != "" {
			text += ", or " + w.Name
		}
		return text
	case errors.As(err, &authority):
		issuer := "an authority"
		if authority.Cert != nil {
			issuer = fmt.Sprintf("%q", authority.Cert.Issuer.String())
		}
		return fmt.Sprintf("TLS failed: the server's certificate is issued by %s, which is not trusted (unknown authority); set %s to the certificate of that authority", issuer, w.CA)
	case errors.As(err, &other):
		return fmt.Sprintf("TLS failed: the server's certificate is rejected: %v; look at it, and at %s", other.Err, w.CA)
	}
	_, alert, ok := strings.Cut(err.Error(), "remote error: tls: ")
	if !ok {
		return ""
	}
	return explainAlert(alert, w, hasCert)
}

func explainValidity(c *x509.Certificate) string {
	if time.Now().Before(c.NotBefore) {
		return fmt.Sprintf("TLS failed: the server's certificate is not valid before %s; check the clocks of both machines", c.NotBefore.Format(time.RFC3339))
	}
	return fmt.Sprintf("TLS failed: the server's certificate has expired, on %s; renew it, and have the server load it", c.NotAfter.Format(time.RFC3339))
}

// namesOf lists what a certificate is for.
func namesOf(c *x509.Certificate) string {
	names := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "no host name or address"
	}
	return strings.Join(names, ", ")
}

// explainAlert is about what a server says of the client. What it sends where it
// misses a certificate depends on the version of TLS.
func explainAlert(alert string, w Words, hasCert bool) string {
	missing := strings.Contains(alert, "certificate required")
	for _, text := range []string{"bad certificate", "handshake failure", "unknown certificate", "expired certificate", "revoked certificate", "unsupported certificate"} {
		about := strings.Contains(alert, text)
		if about && hasCert {
			return fmt.Sprintf("TLS failed: the server rejects the client certificate (%s); use one in %s that is valid and issued by an authority that the server trusts", alert, w.Cert)
		}
		missing = missing || about
	}
	switch {
	case strings.Contains(alert, "protocol version"):
		return fmt.Sprintf("TLS failed: the server has no version of TLS from 1.2 on (%s); upgrade it", alert)
	case missing:
		return fmt.Sprintf("TLS failed: the server requires a client certificate (%s); set %s", alert, w.Cert)
	}
	return fmt.Sprintf("TLS failed: the server rejects the connection (%s); look into its log", alert)
}
