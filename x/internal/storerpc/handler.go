// Package storerpc serves an engine over the network: the StoreService of
// sema.v1, in front of any [fleet.Store]. x/remotestore is its client.
//
// A server that is asked for many semaphores at a time, and that wants to know
// soon whether its clients are there, speaks HTTP/2, also without TLS:
//
//	server := &http.Server{Protocols: &http.Protocols{}, HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second}}
//	server.Protocols.SetHTTP1(true)
//	server.Protocols.SetUnencryptedHTTP2(true)
//	path, handler := storerpc.NewHandler(store)
//	mux.Handle(path, handler)
//	server.RegisterOnShutdown(handler.EndStreams)
//
// Who may do what is not its business: wrap the handler, or pass an interceptor
// among the options.
package storerpc

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

// A Handler serves a store. Its fields are set before it serves.
type Handler struct {
	// Heartbeat is how often those who listen are told that the service is there.
	Heartbeat time.Duration
	// Lifetime is about how long a stream of hints goes on before the client has to
	// ask for another one: by which it tells that it is still there, through
	// whatever is in between.
	Lifetime time.Duration

	inner http.Handler
	life  context.Context
	end   context.CancelFunc
}

const (
	heartbeat = 5 * time.Second
	lifetime  = 2 * time.Minute

	// maxRequest bounds a request, in bytes. Clients send at most 512 operations at a
	// time: a few dozen bytes each, and at most 800 of metadata.
	maxRequest = 1 << 20
	// maxText bounds what is told of oneself.
	maxText = 8 << 10
)

// NewHandler serves a store under a path, which is returned for a mux. It does not
// close the store.
func NewHandler(store fleet.Store, options ...connect.HandlerOption) (path string, h *Handler) {
	h = &Handler{Heartbeat: heartbeat, Lifetime: lifetime}
	h.life, h.end = context.WithCancel(context.Background())
	defaults := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxRequest),
		codecs(),
		connect.WithCompression("gzip", nil, nil), // costs more than it saves
	}
	path, h.inner = semav1connect.NewStoreServiceHandler(&service{store, h}, append(defaults, options...)...)
	return path, h
}

// EndStreams ends all streams, so that [http.Server.Shutdown] need not wait for
// them. Their clients go elsewhere, or come back.
func (h *Handler) EndStreams() { h.end() }

// ServeHTTP is for [http.Handler]. A stream may take longer than the server
// allows for an answer, and no longer than its lifetime, whether its client reads
// or not.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == semav1connect.StoreServiceListenProcedure {
		c := http.NewResponseController(w)
		// Where it is not supported, it is not needed.
		_ = c.SetWriteDeadline(time.Now().Add(2*h.Lifetime + 2*h.Heartbeat))
		defer c.SetWriteDeadline(time.Time{})
		_ = c.SetReadDeadline(time.Time{})
	}
	h.inner.ServeHTTP(w, r)
}
