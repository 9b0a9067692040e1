package server

import (
	"maps"
	"slices"
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

// Parameters are the query parameters that a route reads.
func (s *Server) Parameters(route string) []string {
	return slices.Sorted(maps.Keys(parameters[route]))
}

// ProblemTypes are the types of problems, each with its status.
func (s *Server) ProblemTypes() map[string]int {
	types := map[string]int{}
	for _, k := range problemKinds {
		types[problemPath+k.name] = k.status
	}
	return types
}

// Denied returns how many rejected tickets are noted.
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
