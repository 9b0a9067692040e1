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
	mux.Handle("/play/", s.observe("GET /play/", func(w *responseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			if err := s.receive(w, r); err != nil {
				s.service.fail(w, r, err)
				return
			}
		}
		playground().ServeHTTP(w, r)
	}))
}
