package server

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

// readWeights are the procedures whose replies may be large. A snapshot for Go
// clients is whole; those of the service are pages.
var readWeights = map[string]int64{
	semav1connect.StoreServiceInspectProcedure: 8,
	semav1connect.StoreServiceListProcedure:    1,
	semav1connect.SemaServiceInspectProcedure:  1,
	semav1connect.SemaServiceListProcedure:     1,
}

// reading has a handler wait for its turn to read, and holds it until all is sent.
func (s *Server) reading(handler http.Handler) http.Handler {
	rejected := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if weight := readWeights[r.URL.Path]; weight > 0 {
			done, err := s.accounts.read(r.Context(), weight)
			if err != nil {
				_ = rejected.Write(w, r, wire.FaultOf(err))
				return
			}
			defer done()
		}
		handler.ServeHTTP(w, r)
	})
}

// sending calls send when it is the caller's turn to read: what a stream sends is in
// memory until its client has read it. It reports whether the stream goes on.
func (s *Server) sending(ctx context.Context, send func() bool) bool {
	for {
		done, err := s.accounts.read(ctx, 1)
		switch {
		case err == nil:
			defer done()
			return send()
		case ctx.Err() != nil:
			return false
		}
	}
}
