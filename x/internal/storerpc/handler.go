// Package storerpc serves any [fleet.Store] over the network, as the StoreService of
// sema.v1. x/remotestore is its client.
//
// A server should support HTTP/2, also without TLS: clients then send many requests at a
// time over one connection, and pings soon detect clients that are gone.
//
//	server := &http.Server{Protocols: &http.Protocols{}, HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second}}
//	server.Protocols.SetHTTP1(true)
//	server.Protocols.SetUnencryptedHTTP2(true)
//	path, handler := storerpc.NewHandler(store)
//	mux.Handle(path, handler)
//	server.RegisterOnShutdown(handler.EndStreams)
//
// The handler does no authorisation: wrap it, or pass an interceptor among the options.
package storerpc

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

// A Handler serves a store. Its fields must be set before it serves requests.
type Handler struct {
	// Heartbeat is the interval of heartbeats to listeners; default 5s.
	Heartbeat time.Duration
	// Lifetime is the approximate duration of a stream of notifications, after which
	// the client has to begin another one; default 2m. It makes the server notice clients
	// that are gone, even behind a proxy.
	Lifetime time.Duration

	inner  http.Handler
	ctx    context.Context // ends with EndStreams
	cancel context.CancelFunc
}

const (
	heartbeat = 5 * time.Second
	lifetime  = 2 * time.Minute

	// maxRequest bounds a request, in bytes. Clients send at most 512 operations at a
	// time: a few dozen bytes each, and at most 800 of metadata.
	maxRequest = 1 << 20
	// maxText bounds each text that a client sends about itself or an operation, in
	// bytes.
	maxText = 8 << 10
)

// NewHandler returns a handler for a store, and the path to register it under. The
// handler does not close the store.
func NewHandler(store fleet.Store, options ...connect.HandlerOption) (path string, h *Handler) {
	h = &Handler{Heartbeat: heartbeat, Lifetime: lifetime}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	defaults := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxRequest),
		codecs(),
		connect.WithCompression("gzip", nil, nil), // disabled: it costs more than it saves
	}
	path, h.inner = semav1connect.NewStoreServiceHandler(&service{store, h}, append(defaults, options...)...)
	return path, h
}

// EndStreams ends all streams, so that [http.Server.Shutdown] does not wait for them.
// Their clients connect to another server, or connect again.
func (h *Handler) EndStreams() { h.cancel() }

// ServeHTTP implements [http.Handler]. A stream may take longer than the server's write
// timeout. Its own write deadline follows from its lifetime, so that it ends even if the
// client does not read.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == semav1connect.StoreServiceListenProcedure {
		c := http.NewResponseController(w)
		// A response writer that does not support deadlines does not need them.
		_ = c.SetWriteDeadline(time.Now().Add(2*h.Lifetime + 2*h.Heartbeat))
		defer c.SetWriteDeadline(time.Time{})
		_ = c.SetReadDeadline(time.Time{})
	}
	h.inner.ServeHTTP(w, r)
}
