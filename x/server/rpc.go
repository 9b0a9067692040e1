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

// mountRPC serves programs: the engine itself, for x/remotestore, and the service,
// for other languages. Connect, gRPC and gRPC-Web are told apart by what they say.
func (s *Server) mountRPC(mux *http.ServeMux) {
	path, handler := storerpc.NewHandler(guarded{s}, codecs())
	s.engine = handler
	mux.Handle(path, s.identified("rpc engine", s.reading(handler)))
	path, service := semav1connect.NewSemaServiceHandler(rpc{guarded{s}}, connect.WithReadMaxBytes(int(s.options.Limits.Body)), codecs())
	mux.Handle(path, s.identified("rpc service", s.reading(service)))
}

// identified has a handler know who calls, and turns away who must not.
func (s *Server) identified(name string, handler http.Handler) http.Handler {
	counted, refuse := s.counted.of(route{method: "RPC", path: name}), connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		seen := &observed{ResponseWriter: w}
		soon(seen, r)
		r.Body = &rpcBody{r.Body, r, seen.Header()}
		who, err := s.identify(r)
		if err != nil {
			p := problemOf(err)
			maps.Copy(seen.Header(), p.header)
			if p.Status == http.StatusUnauthorized {
				err = connect.NewError(connect.CodeUnauthenticated, errors.New(p.Detail))
			}
			_ = refuse.Write(seen, r, wire.FaultOf(err))
		} else {
			body := &meteredBody{ReadCloser: r.Body, accounts: s.accounts, account: s.accounts.of(who.principal), header: seen.Header()}
			defer body.ended()
			r = r.WithContext(who.in(r.Context()))
			r.Body = body
			handler.ServeHTTP(seen, r)
		}
		counted(seen.status, start)
	})
}
