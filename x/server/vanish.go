package server

import (
	"context"
	"net"
	"net/http"
	"time"
)

// A connKey is for the connection of a request's context.
type connKey struct{}

// ConnContext is for [http.Server]: with it a lease that is bound to a connection of
// HTTP/1.1 is back soon after its client has vanished without a word. Over HTTP/2 it
// is the server's pings that notice, see [http.HTTP2Config].
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// watchOver has who vanishes be noticed, until it is stopped, on a connection that
// is written to at least that often.
func watchOver(r *http.Request, every time.Duration) (stop func()) {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secured.NetConn()
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok || r.ProtoMajor != 1 {
		return func() {}
	}
	giveUpAfter(tcp, max(2*every, time.Second))
	return func() { giveUpAfter(tcp, 0) }
}
