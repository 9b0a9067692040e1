package netfault

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"
)

// A Target is a server, and how a client speaks to it.
type Target struct {
	Address string
	TLS     *tls.Config // nil: without
	ALPN    []string
	// Hello is what a server without TLS replies to, in the plain protocol.
	Hello string
}

// quiet is how long a server may take to reject a client after the handshake: with
// TLS 1.3 it checks the client's certificate when the client is through.
const quiet = 300 * time.Millisecond

// Probe connects as a client does, and returns the error that it meets; nil if
// there is none. It is for clients that retry on their own and do not tell why.
func Probe(ctx context.Context, t Target) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return err
	}
	defer c.Close()
	if t.TLS == nil {
		if t.speaksTLS(ctx) {
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
		if Explain(err, Words{}, false) == nil && t.speaksPlain(ctx) {
			return ErrPlain
		}
		return err
	}
	over.SetReadDeadline(time.Now().Add(quiet))
	if _, err := over.Read(make([]byte, 1)); err != nil && strings.Contains(err.Error(), "remote error: tls: ") {
		return err
	}
	return nil
}

// speaksTLS reports whether a server that a client reaches without TLS uses it.
func (t Target) speaksTLS(ctx context.Context) bool {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return false
	}
	defer c.Close()
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// Nothing is sent over it, so that nobody has to be trusted.
	err = tls.Client(c, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(within)
	return err == nil || strings.Contains(err.Error(), "remote error: tls: ")
}

// speaksPlain reports whether a server that does not answer to TLS answers without.
func (t Target) speaksPlain(ctx context.Context) bool {
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
	const alert = 0x15 // the first byte of a TLS record that rejects what was sent
	return err == nil && first[0] != alert
}
