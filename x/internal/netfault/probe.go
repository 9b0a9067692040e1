package netfault

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"
)

// A Target is a server and the protocol that a client uses with it.
type Target struct {
	Address string      // host:port
	TLS     *tls.Config // nil: without TLS
	ALPN    []string    // protocols to offer in the TLS handshake
	// Hello is a request of the plain protocol, to which a server without TLS replies.
	Hello string
}

// rejectTimeout is how long a server may take to reject a client after the handshake. With
// TLS 1.3 it checks the client's certificate after the client has finished the handshake.
const rejectTimeout = 300 * time.Millisecond

// Probe connects as a client does, and returns the error or nil. It finds the reason for
// clients that retry by themselves and do not report why they fail.
func Probe(ctx context.Context, t Target) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return err
	}
	defer c.Close()
	if t.TLS == nil {
		if t.usesTLS(ctx) {
			return ErrSecure
		}
		return nil
	}
	secure := t.TLS.Clone()
	secure.NextProtos = t.ALPN
	if secure.ServerName == "" {
		secure.ServerName, _, _ = net.SplitHostPort(t.Address)
	}
	over := tls.Client(c, secure)
	if err := over.HandshakeContext(ctx); err != nil {
		if Explain(err, SettingNames{}, false) == nil && t.acceptsPlain(ctx) {
			return ErrPlain
		}
		return err
	}
	over.SetReadDeadline(time.Now().Add(rejectTimeout))
	if _, err := over.Read(make([]byte, 1)); err != nil && strings.Contains(err.Error(), "remote error: tls: ") {
		return err
	}
	return nil
}

// usesTLS reports whether a server that a client connects to without TLS uses TLS.
func (t Target) usesTLS(ctx context.Context) bool {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return false
	}
	defer c.Close()
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// The certificate need not be verified, since nothing is sent over the connection.
	err = tls.Client(c, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(within)
	return err == nil || strings.Contains(err.Error(), "remote error: tls: ")
}

// acceptsPlain reports whether a server that does not reply to a TLS handshake replies
// without TLS.
func (t Target) acceptsPlain(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // the handshake may have used up the time
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return false
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	c.SetDeadline(deadline)
	if _, err := c.Write([]byte(t.Hello)); err != nil {
		return false
	}
	first := make([]byte, 1)
	_, err = c.Read(first)
	const alert = 0x15 // the first byte of a TLS alert record, which rejects the request
	return err == nil && first[0] != alert
}
