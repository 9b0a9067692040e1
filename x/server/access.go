package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
)

// An identity is the authenticated client of a request. Its principal owns the leases, the
// idempotency keys and the counts of the client: "token:<name>", "cert:<issuer key hash>/<name>", or "" if no authentication is
// configured.
type identity struct {
	name      string // shown to users and logged
	principal string
	prefix    string
	verbs     []Verb
}

// anonymousIdentity is the identity of all requests if no authentication is configured.
var anonymousIdentity = &identity{name: "anonymous", verbs: Verbs()}

func (i *identity) may(verb Verb, semaphore string) bool {
	return strings.HasPrefix(semaphore, i.prefix) && slices.Contains(i.verbs, verb)
}

// bearer returns the bearer token of a request, and whether it has one.
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimLeft(token, " "), strings.EqualFold(scheme, "Bearer") // RFC 9110, section 11.1
}

// identify authenticates a request, by its token if ok is true, and returns its call. Pair
// it with [call.finish].
func (s *service) identify(r *http.Request, token string, ok bool) (*call, error) {
	i, err := s.identity(r, token, ok)
	if err != nil {
		s.journal.warn("unidentified", "request rejected", "from", r.RemoteAddr, "method", r.Method, "path", loggedPath(r), "error", err)
		return nil, err
	}
	account := s.accounts.anonymous
	if i.principal != "" {
		account = s.accounts.of(i.principal)
	}
	return &call{caller: caller{i, account, r.RemoteAddr, s.journal}}, nil
}

func (s *service) identity(r *http.Request, token string, ok bool) (*identity, error) {
	if err := s.fromBrowser(r); err != nil {
		return nil, err
	}
	known := s.tokens.Load()
	switch certified := r.TLS != nil && len(r.TLS.VerifiedChains) > 0; {
	case known.required: // tokens have verbs and a prefix, certificates have neither
	case certified:
		return certificateIdentity(r.TLS.VerifiedChains[0])
	default:
		return anonymousIdentity, nil
	}
	if found := known.find(token); ok && found != nil {
		return found, nil
	}
	detail := "send a token: Authorization: Bearer …"
	if ok {
		detail = "unknown token: check that it was copied completely and belongs to this server"
	}
	return nil, &problem{
		Status: http.StatusUnauthorized, Title: "no valid token", Detail: detail,
		header: http.Header{"WWW-Authenticate": {`Bearer realm="sema"`}},
	}
}

// fromBrowser rejects requests that a page of another site makes a browser send. Such a
// page has no token, and needs none if the server requires none.
func (s *service) fromBrowser(r *http.Request) error {
	forbidden := func(detail string) error {
		return &problem{Status: http.StatusForbidden, Title: "not allowed", Detail: detail}
	}
	if err := s.crossOrigin.Check(r); err != nil {
		return forbidden("request from a page of another site: " + err.Error())
	}
	if s.tokens.Load().required || r.TLS != nil {
		return nil // a page of another site has no token, and the server's certificate does not contain its name
	}
	// DNS rebinding: a site whose name resolves to this address makes its pages
	// same-origin. They still send that name in the Host header.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	switch name := hostname(r.Host); {
	case !ok || isLocal(name) || slices.Contains(s.options.Hosts, name):
		return nil
	case local.IP.IsLoopback():
		return forbidden(fmt.Sprintf("host %q: on loopback, a server without tokens accepts only IP addresses, localhost and the names in hosts:; use one of these, or configure tokens", r.Host))
	case !isPrivate(name):
		return forbidden(fmt.Sprintf("host %q may be the name of another site, and this server requires no tokens; use its address, add the name to hosts:, or configure tokens", r.Host))
	}
	return nil
}

// hostname returns the lower-case name of a Host header, without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// isLocal reports whether a host is an IP address or a loopback name.
func isLocal(name string) bool {
	return net.ParseIP(name) != nil || name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// isPrivate reports whether a host name is one that no public site can have: a DNS
// rebinding attack needs a public name.
func isPrivate(name string) bool {
	if !strings.Contains(name, ".") {
		return true
	}
	if own, err := os.Hostname(); err == nil && strings.EqualFold(name, own) {
		return true
	}
	return slices.ContainsFunc([]string{".local", ".internal", ".svc", ".home.arpa"}, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// loggedPath returns the path of a request without the id of a lease, which only the
// lease's holder may know.
func loggedPath(r *http.Request) string {
	before, _, found := strings.Cut(r.URL.Path, "/leases/")
	if !found {
		return r.URL.Path
	}
	return before + "/leases/…"
}

// isURI reports whether a name is that of a URI SAN rather than a common name. Common names
// may contain colons, too, such as system:node:a.
func isURI(name string) bool {
	return strings.Contains(name, "://") || len(name) >= 4 && strings.EqualFold(name[:4], "urn:")
}

// certificateIdentity identifies the holder of a client certificate by its first URI SAN,
// or else its common name, and by the key of the issuing authority: two authorities may use
// the same names.
func certificateIdentity(chain []*x509.Certificate) (*identity, error) {
	leaf, issuer := chain[0], chain[min(1, len(chain)-1)]
	name, unusable := leaf.Subject.CommonName, ""
	switch {
	case len(leaf.URIs) > 0:
		if name = leaf.URIs[0].String(); !isURI(name) {
			unusable = "its URI SAN could be a common name; want a URN, or a URI with ://"
		}
	case name == "":
		unusable = "it has neither a URI SAN nor a common name"
	case isURI(name): // it would equal the URI SAN of another certificate
		unusable = "its common name is a URI; put it into a URI SAN"
	}
	if err := checkText(name); err != nil && unusable == "" {
		unusable = "its name: " + err.Error()
	}
	if unusable != "" {
		return nil, &problem{Status: http.StatusForbidden, Title: "not allowed", Detail: "the client certificate has no usable name: " + unusable}
	}
	key := sha256.Sum256(issuer.RawSubjectPublicKeyInfo)
	return &identity{
		// The fields of a lease's metadata end at spaces, so a name must not contain any.
		name: strings.Join(strings.Fields(name), "_"), principal: "cert:" + hex.EncodeToString(key[:16]) + "/" + name, verbs: Verbs(),
	}, nil
}

// A caller is an identity with the address that it called from.
type caller struct {
	*identity
	account *account // of the principal; nil outside of a request
	from    string
	journal *journal // for denials; nil outside of a request
}

// allow fails and logs if the caller may not apply the verb to the semaphore. With the
// name "", it checks the verb for the caller's own prefix.
func (c caller) allow(verb Verb, semaphore string) error {
	wanted := cmp.Or(semaphore, c.prefix)
	if c.may(verb, wanted) {
		return nil
	}
	if c.journal != nil {
		c.journal.warn("denied", "request denied", "principal", c.principal, "from", c.from, "verb", string(verb), "semaphore", semaphore)
	}
	detail := fmt.Sprintf("token %q lacks the verb %s", c.name, verb) // only tokens lack verbs
	switch {
	case slices.Contains(c.verbs, verb):
		detail = fmt.Sprintf("token %q may not use %q", c.name, wanted)
	case wanted != "":
		detail += fmt.Sprintf(" on %q", wanted)
	}
	return &problem{Status: http.StatusForbidden, Title: "not allowed", Detail: detail + "; " + c.rights()}
}

// rights describes what the token of an identity allows.
func (i *identity) rights() string {
	verbs := make([]string, len(i.verbs))
	for n, verb := range i.verbs {
		verbs[n] = string(verb)
	}
	text := "its verbs are " + strings.Join(verbs, ", ")
	if i.prefix != "" {
		text += fmt.Sprintf(", on names with the prefix %q", i.prefix)
	}
	return text
}

// A call is a request in progress: its caller, and the reservations that last until the
// response is sent.
type call struct {
	caller

	mu    sync.Mutex
	atEnd []func()
}

type callKey struct{}

// withCall returns a context that contains the call.
func (c *call) withCall(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// finish releases the call's reservations.
func (c *call) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, release := range c.atEnd {
		release()
	}
	c.atEnd = nil
}

// callerOf returns the caller of the call in a context.
func callerOf(ctx context.Context) caller {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.caller
	}
	return caller{identity: anonymousIdentity}
}

// accountOf returns the account of the caller of the call in a context.
func (s *service) accountOf(ctx context.Context) *account {
	c := callerOf(ctx)
	if c.account != nil {
		return c.account
	}
	return s.accounts.of(c.principal)
}

// reading acquires a read permit for the caller, which is held until the response is sent:
// it bounds snapshots and lists. Replies that may be large weigh more.
func (s *service) reading(ctx context.Context, weight int64) error {
	done, err := s.accounts.read(ctx, weight)
	if err != nil {
		return err
	}
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		done()
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.atEnd = append(c.atEnd, done)
	return nil
}

// sending acquires a read permit for the caller and calls send: a stream's message stays in
// memory until the client has read it. It reports whether the stream continues.
func (s *service) sending(ctx context.Context, send func() bool) bool {
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
