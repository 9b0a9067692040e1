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

// SettingNames are the names of a store's TLS settings in its URL, for advice in messages.
type SettingNames struct {
	Plain  string // advice if the server does not use TLS: "use sema://"
	Secure string // advice if the server uses TLS: "use semas://"
	CA     string // parameter for the file of the authority: "ca="
	Cert   string // parameters for the files of a client certificate: "cert= and key="
	Name   string // further advice about a certificate for another name; may be empty
}

// An Error explains another error.
type Error struct {
	Fault fleet.Fault
	Text  string
	Cause error
}

// Error implements error. It does not contain the text of the cause, which may contain
// settings.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the fault and the cause, for [errors.Is].
func (e *Error) Unwrap() []error { return []error{e.Fault, e.Cause} }

// Errors that [Probe] returns.
var (
	ErrPlain  = errors.New("the server does not use TLS on this port")
	ErrSecure = errors.New("the server uses TLS on this port")
)

// Explain returns the explanation of an error, or nil if the error is not about reaching
// a server. hasCert is true if the client has a certificate.
func Explain(err error, settings SettingNames, hasCert bool) *Error {
	if err == nil {
		return nil
	}
	if fault := explainTLS(err, settings, hasCert); fault != "" {
		return &Error{fleet.FaultTLS, fault, err}
	}
	var resolve *net.DNSError
	explained := func(f fleet.Fault, format string, args ...any) *Error {
		return &Error{f, fmt.Sprintf(format, args...), err}
	}
	switch {
	case errors.As(err, &resolve) && resolve.IsNotFound:
		return explained(fleet.FaultName, "name resolution failed: host %q is unknown; check its name", resolve.Name)
	case errors.As(err, &resolve):
		return explained(fleet.FaultName, "name resolution failed: host %q: %s; check the resolver (DNS)", resolve.Name, resolve.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return explained(fleet.FaultConnection, "connection refused")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return explained(fleet.FaultConnection, "no route to the host; check the address and the network")
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

// explainTLS explains an error of TLS. It returns "" for other errors.
func explainTLS(err error, settings SettingNames, hasCert bool) string {
	var (
		record    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		other     *tls.CertificateVerificationError
	)
	switch {
	case errors.Is(err, ErrSecure):
		return "TLS failed: " + ErrSecure.Error() + ", and the client does not; " + settings.Secure
	case errors.Is(err, ErrPlain), errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "TLS failed: " + ErrPlain.Error() + "; " + settings.Plain
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		return explainValidity(invalid.Cert)
	case errors.As(err, &name):
		text := fmt.Sprintf("TLS failed: the server's certificate is for %s, and not for %s; use one of its names in the URL, or a certificate for this one", namesOf(name.Certificate), name.Host)
		if settings.Name != "" {
			text += ", or " + settings.Name
		}
		return text
	case errors.As(err, &authority):
		issuer := "an authority"
		if authority.Cert != nil {
			issuer = fmt.Sprintf("%q", authority.Cert.Issuer.String())
		}
		return fmt.Sprintf("TLS failed: the server's certificate is issued by %s, which is not trusted (unknown authority); set %s to the certificate of that authority", issuer, settings.CA)
	case errors.As(err, &other):
		return fmt.Sprintf("TLS failed: the server's certificate is rejected: %v; check it, and %s", other.Err, settings.CA)
	}
	_, alert, ok := strings.Cut(err.Error(), "remote error: tls: ")
	if !ok {
		return ""
	}
	return explainAlert(alert, settings, hasCert)
}

func explainValidity(c *x509.Certificate) string {
	if time.Now().Before(c.NotBefore) {
		return fmt.Sprintf("TLS failed: the server's certificate is not valid before %s; check the clocks of both machines", c.NotBefore.Format(time.RFC3339))
	}
	return fmt.Sprintf("TLS failed: the server's certificate has expired, on %s; renew it, and make the server load it", c.NotAfter.Format(time.RFC3339))
}

// namesOf lists the names and addresses that a certificate is for.
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

// explainAlert explains a TLS alert from the server. The alert for a missing client
// certificate depends on the version of TLS.
func explainAlert(alert string, settings SettingNames, hasCert bool) string {
	missing := strings.Contains(alert, "certificate required")
	for _, text := range []string{"bad certificate", "handshake failure", "unknown certificate", "expired certificate", "revoked certificate", "unsupported certificate"} {
		about := strings.Contains(alert, text)
		if about && hasCert {
			return fmt.Sprintf("TLS failed: the server rejects the client certificate (%s); use one in %s that is valid and issued by an authority that the server trusts", alert, settings.Cert)
		}
		missing = missing || about
	}
	switch {
	case strings.Contains(alert, "protocol version"):
		return fmt.Sprintf("TLS failed: the server does not support TLS 1.2 or later (%s); upgrade it", alert)
	case missing:
		return fmt.Sprintf("TLS failed: the server requires a client certificate (%s); set %s", alert, settings.Cert)
	}
	return fmt.Sprintf("TLS failed: the server rejects the connection (%s); see its log", alert)
}
