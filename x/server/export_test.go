package server

import (
	"maps"
	"slices"
	"strings"
	"time"
)

func init() { readTimeout = 2 * time.Second }

// Routes returns all routes, as the OpenAPI description names them.
func (s *Server) Routes() (all []string) {
	for _, r := range s.routes {
		all = append(all, r.method+" "+strings.TrimSuffix(r.path, "{$}"))
	}
	return all
}

// Parameters returns the query parameters of a route.
func (s *Server) Parameters(route string) []string {
	return slices.Sorted(maps.Keys(parameters[route]))
}

// ProblemTypes returns the status of each problem type.
func (s *Server) ProblemTypes() map[string]int {
	types := map[string]int{}
	for _, k := range problemKinds {
		types[problemPath+k.name] = k.status
	}
	return types
}

// Denied returns the number of recorded tickets of rejected acquires and splits.
func (s *Server) Denied() (n int) {
	s.service.sessions.mu.Lock()
	defer s.service.sessions.mu.Unlock()
	for _, one := range s.service.sessions.all {
		one.turn <- struct{}{}
		n += len(one.denied)
		one.unlock()
	}
	return n
}
