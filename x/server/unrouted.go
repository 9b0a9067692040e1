package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// unrouted responds to requests that no route serves: 404 if there is no such path,
// or else 405 with the methods that there are. OPTIONS asks for these.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request) error {
	methods := s.methodsOf(r.URL)
	if len(methods) == 0 {
		hint := ""
		if path := r.URL.Path; len(path) > 1 && strings.HasSuffix(path, "/") {
			hint = " (there is no path with a slash at its end)"
		}
		return newProblem(kindNoPath, "%s %s: /openapi.json has all paths%s", r.Method, r.URL.Path, hint)
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return newProblem(kindMethod, "%s %s: want one of %s", r.Method, r.URL.Path, strings.Join(methods, ", "))
}

// methodsOf returns the methods of the routes that a path has, in order.
func (s *Server) methodsOf(u *url.URL) (methods []string) {
	for _, route := range s.routes {
		if !matches(strings.TrimSuffix(route.path, "{$}"), u.EscapedPath()) {
			continue
		}
		methods = append(methods, route.method)
		if route.method == http.MethodGet {
			methods = append(methods, http.MethodHead) // [http.ServeMux] serves it, too
		}
	}
	if len(methods) > 0 {
		methods = append(methods, http.MethodOptions)
	}
	slices.Sort(methods)
	return methods
}

// matches reports whether a path has the segments of a pattern, whose wildcards stand
// for one segment each.
func matches(pattern, path string) bool {
	wanted, given := strings.Split(pattern, "/"), strings.Split(path, "/")
	return len(wanted) == len(given) && !slices.ContainsFunc(wanted, func(segment string) bool {
		actual := given[0]
		given = given[1:]
		if strings.HasPrefix(segment, "{") {
			return actual == ""
		}
		return segment != actual
	})
}
