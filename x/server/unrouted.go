package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// unrouted responds to requests that match no route: 404 if the path does not exist, or else
// 405 with the allowed methods. To OPTIONS it responds with the allowed methods.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request) error {
	methods := s.methodsOf(r.URL)
	if len(methods) == 0 {
		hint := ""
		if path := r.URL.Path; len(path) > 1 && strings.HasSuffix(path, "/") {
			hint = " (no path ends with a slash)"
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

// methodsOf returns the methods of the routes with a path, sorted.
func (s *Server) methodsOf(u *url.URL) (methods []string) {
	for _, route := range s.routes {
		if !matches(strings.TrimSuffix(route.path, "{$}"), u.EscapedPath()) {
			continue
		}
		methods = append(methods, route.method)
		if route.method == http.MethodGet {
			methods = append(methods, http.MethodHead) // [http.ServeMux] serves it as well
		}
	}
	if len(methods) > 0 {
		methods = append(methods, http.MethodOptions)
	}
	slices.Sort(methods)
	return methods
}

// matches reports whether a path matches a pattern whose wildcards each match one segment.
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
