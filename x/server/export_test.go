package server

import (
	"strings"
	"time"
)

func init() { readWithin = 2 * time.Second }

// Routes are all there are, as the description names them.
func (s *Server) Routes() (all []string) {
	for _, r := range s.routes {
		all = append(all, r.method+" "+strings.TrimSuffix(r.path, "{$}"))
	}
	return all
}
