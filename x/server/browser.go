package server

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
)

// fromBrowser rejects requests that a page of another site makes a browser send.
// Such a page cannot send a token, and needs none where none is required.
func (s *service) fromBrowser(r *http.Request) error {
	forbidden := func(detail string) error {
		return &problem{Status: http.StatusForbidden, Title: "not allowed", Detail: detail}
	}
	if err := s.crossOrigin.Check(r); err != nil {
		return forbidden("a page of another site may not do this: " + err.Error())
	}
	if s.tokens.Load().required() || r.TLS != nil {
		return nil // a page of another site has no token, and its name is in no certificate of this server's
	}
	// DNS rebinding: a site whose name resolves to this address makes its pages
	// same-origin. They still send that name.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	switch {
	case !ok:
		return nil
	case local.IP.IsLoopback() && !isLocal(r.Host) && !slices.Contains(s.options.Hosts, hostname(r.Host)):
		return forbidden(fmt.Sprintf("this server is for this machine alone, and is called %q: use 127.0.0.1 or localhost, or have it ask for tokens", r.Host))
	case !isPrivate(r.Host) && !slices.Contains(s.options.Hosts, hostname(r.Host)):
		return forbidden(fmt.Sprintf("this server asks for no tokens, and is called %q, which may be a name of another site: use its address, list the name with hosts:, or have it ask for tokens", r.Host))
	}
	return nil
}

// hostname returns a Host header without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// isLocal reports whether a Host header is an address or a name of this machine.
func isLocal(host string) bool {
	name := hostname(host)
	return net.ParseIP(name) != nil || name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// isPrivate reports whether a Host header is an address, or a name that no public
// site can have: the attacker of a DNS rebinding needs one.
func isPrivate(host string) bool {
	name := hostname(host)
	if isLocal(host) || !strings.Contains(name, ".") {
		return true
	}
	if own, err := os.Hostname(); err == nil && strings.EqualFold(name, own) {
		return true
	}
	return slices.ContainsFunc([]string{".local", ".internal", ".svc", ".home.arpa"}, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}
