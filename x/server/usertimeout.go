package server

import (
	"context"
	"net"
	"net/http"
	"time"
)

// A connKey is the context key of a request's connection.
type connKey struct{}

// ConnContext stores the connection in the context of its requests. Set it as
// [http.Server.ConnContext]: then a lease that is bound to an HTTP/1.1 connection is released
// soon after its client has disappeared without closing the connection. Over HTTP/2, the
// server's pings detect that, see [http.HTTP2Config].
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// detectDisconnect sets TCP_USER_TIMEOUT on the connection of a request until stop is called,
// to detect a client that has disappeared. The connection must be written to at least once
// per interval.
func detectDisconnect(r *http.Request, every time.Duration) (stop func()) {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secured.NetConn()
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok || r.ProtoMajor != 1 {
		return func() {}
	}
	setUserTimeout(tcp, max(2*every, time.Second))
	return func() { setUserTimeout(tcp, 0) }
}
