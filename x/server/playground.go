package server

import (
	"net/http"
	"sync"

	"github.com/sema-go/sema/x/play/site"
)

// playground is read on first use: most servers never serve it.
var playground = sync.OnceValue(func() http.Handler {
	return http.StripPrefix("/play", site.Handler(site.Built()))
})

// mountPlayground mounts the playground at /play/. It contains no data of this server, so it
// requires no token.
func (s *Server) mountPlayground(mux *http.ServeMux) {
	s.mountPublic(mux, "/play/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { playground().ServeHTTP(w, r) }))
}

// mountDocuments mounts [Options].Documents at /docs/, without a token.
func (s *Server) mountDocuments(mux *http.ServeMux, documents http.Handler) {
	if documents != nil {
		s.mountPublic(mux, "/docs/", http.StripPrefix("/docs", documents))
	}
}

// mountPublic mounts pages that contain no data of this server.
func (s *Server) mountPublic(mux *http.ServeMux, path string, pages http.Handler) {
	mux.Handle(path, s.observe("GET "+path, func(w *responseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			if err := s.receive(w, r); err != nil {
				s.service.fail(w, r, err)
				return
			}
		}
		pages.ServeHTTP(w, r)
	}))
}
