package server

import (
	"errors"
	"maps"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/x/internal/storerpc"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

// mountRPC serves programs: the store itself, for x/remotestore, and the service, for
// other languages. Connect, gRPC and gRPC-Web are told apart by their media types.
func (s *Server) mountRPC(mux *http.ServeMux) {
	path, handler := storerpc.NewHandler(storeAPI{s.service}, codecs())
	s.store = handler
	mux.Handle(path, s.identified("rpc store", handler))
	path, service := semav1connect.NewSemaServiceHandler(rpcAPI{s.service}, connect.WithReadMaxBytes(int(s.service.options.Limits.Body)), codecs())
	mux.Handle(path, s.identified("rpc service", service))
}

// identified calls a handler with the call of a request in its context, or rejects it.
func (s *Server) identified(name string, handler http.Handler) http.Handler {
	counted, rejected := s.service.counted.of(route{method: "RPC", path: name}), connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		seen := &observed{ResponseWriter: w}
		soon(seen, r)
		r.Body = &rpcBody{r.Body, r, seen.Header()}
		token, ok := bearer(r)
		c, err := s.service.identify(r, token, ok)
		if err != nil {
			p := problemOf(err)
			maps.Copy(seen.Header(), p.header)
			if p.Status == http.StatusUnauthorized {
				err = connect.NewError(connect.CodeUnauthenticated, errors.New(p.Detail))
			}
			_ = rejected.Write(seen, r, wire.FaultOf(err))
		} else {
			defer c.ended()
			body := &meteredBody{ReadCloser: r.Body, accounts: s.service.accounts, account: c.account, header: seen.Header()}
			defer body.ended()
			r = r.WithContext(c.in(r.Context()))
			r.Body = body
			handler.ServeHTTP(seen, r)
		}
		counted(seen.status, start)
	})
}
