package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// A Verb is what somebody may do.
type Verb string

// The verbs. One does not include another.
const (
	Read    Verb = "read"    // list, inspect, watch, metrics
	Acquire Verb = "acquire" // and renew, and release
	Admin   Verb = "admin"   // configure, drain, resume, revoke, delete
)

// A Token is who may do what with which semaphores.
type Token struct {
	Name   string `yaml:"name"`   // for the log; the token itself is nowhere
	Hash   string `yaml:"hash"`   // sha256:… of the token, see [HashToken]
	Prefix string `yaml:"prefix"` // of the names of semaphores; "" for all
	Verbs  []Verb `yaml:"verbs"`  // none: all
}

// HashToken is what a configuration has of a token. Tokens are long and random, so
// that no slower function is needed.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashKind + hex.EncodeToString(sum[:])
}

const hashKind = "sha256:"

// An identity is who makes a request.
type identity struct {
	name      string
	principal string
	prefix    string
	verbs     []Verb
}

// everybody is who comes where no tokens are asked for.
var everybody = &identity{name: "anonymous"}

func (i *identity) may(verb Verb, semaphore string) bool {
	return strings.HasPrefix(semaphore, i.prefix) && (len(i.verbs) == 0 || slices.Contains(i.verbs, verb))
}

// A caller is an identity at an address.
type caller struct {
	*identity
	from string
}

type callerKey struct{}

func (i *identity) in(ctx context.Context, from string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller{i, from})
}

// who is who makes the request that a context belongs to.
func who(ctx context.Context) caller {
	if c, ok := ctx.Value(callerKey{}).(caller); ok {
		return c
	}
	return caller{identity: everybody}
}

// tokens are the identities, by the hashes of their tokens.
type tokens []struct {
	hash [sha256.Size]byte
	who  *identity
}

// Check fails on a token that cannot be.
func (t Token) Check() error {
	digits, ours := strings.CutPrefix(t.Hash, hashKind)
	if raw, err := hex.DecodeString(digits); err != nil || !ours || len(raw) != sha256.Size {
		return fmt.Errorf("token %q: want a hash of %s and 64 hexadecimal digits, as `sema token` prints it", t.Name, hashKind)
	}
	for _, v := range t.Verbs {
		if !slices.Contains([]Verb{Read, Acquire, Admin}, v) {
			return fmt.Errorf("token %q: there is no verb %q; want read, acquire or admin", t.Name, v)
		}
	}
	if t.Name == "" {
		return errors.New("a token has no name; give it one, for the log")
	}
	return nil
}

func newTokens(all []Token) (known tokens, err error) {
	for _, t := range all {
		if err := t.Check(); err != nil {
			return nil, err
		}
		raw, _ := hex.DecodeString(strings.TrimPrefix(t.Hash, hashKind))
		for _, other := range known {
			if other.hash == [sha256.Size]byte(raw) {
				return nil, fmt.Errorf("tokens %q and %q are the same; make another one with `sema token`", other.who.name, t.Name)
			}
		}
		known = append(known, struct {
			hash [sha256.Size]byte
			who  *identity
		}{[sha256.Size]byte(raw), &identity{t.Name, "token:" + t.Name, t.Prefix, t.Verbs}})
	}
	return known, nil
}

// find compares with all of them, so that how long it takes tells nothing.
func (t tokens) find(token string) (found *identity) {
	hash := sha256.Sum256([]byte(token))
	for i := range t {
		if subtle.ConstantTimeCompare(hash[:], t[i].hash[:]) == 1 {
			found = t[i].who
		}
	}
	return found
}

// admit is who makes a request, if it may. A request that names no semaphore is
// about all that the identity may see.
func (s *Server) admit(r *http.Request, verb Verb) (*identity, error) {
	i, err := s.identify(r)
	if err != nil {
		return nil, err
	}
	return i, i.allow(verb, r.PathValue("name"))
}

// fromBrowser fails for what a page of somebody else's has a browser do. It cannot
// send a token, but where none is asked for it would not have to.
func (s *Server) fromBrowser(r *http.Request) error {
	forbidden := func(detail string) error {
		return &problem{Status: http.StatusForbidden, Title: "not allowed", Detail: detail}
	}
	if err := s.crossOrigin.Check(r); err != nil {
		return forbidden("a page of another site may not do this: " + err.Error())
	}
	// A name that somebody else has point to this machine makes it that site's own.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if ok && local.IP.IsLoopback() && len(s.tokens) == 0 && r.TLS == nil && !isLocal(r.Host) {
		return forbidden(fmt.Sprintf("this server is for this machine alone, and is called %q: use 127.0.0.1 or localhost, or have it ask for tokens", r.Host))
	}
	return nil
}

func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// allow fails unless the identity may do that.
func (i *identity) allow(verb Verb, semaphore string) error {
	if semaphore == "" {
		semaphore = i.prefix
	}
	if !i.may(verb, semaphore) {
		return &problem{
			Status: http.StatusForbidden, Title: "not allowed",
			Detail: fmt.Sprintf("%s may not %s %q; ask for a token with that verb and prefix", i.name, verb, semaphore),
		}
	}
	return nil
}

func (s *Server) identify(r *http.Request) (*identity, error) {
	token, ok := bearer(r)
	return s.identifyBy(r, token, ok)
}

// bearer is the token that a request carries, if it does.
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimLeft(token, " "), strings.EqualFold(scheme, "Bearer") // RFC 9110, section 11.1
}

// identifyBy is who makes a request, by a token if there is one.
func (s *Server) identifyBy(r *http.Request, token string, ok bool) (*identity, error) {
	if err := s.fromBrowser(r); err != nil {
		return nil, err
	}
	switch certified := r.TLS != nil && len(r.TLS.VerifiedChains) > 0; {
	case len(s.tokens) > 0: // which say who may do what; a certificate does not
	case certified:
		return &identity{name: r.TLS.VerifiedChains[0][0].Subject.CommonName}, nil
	default:
		return everybody, nil
	}
	if found := s.tokens.find(token); ok && found != nil {
		return found, nil
	}
	detail := "send a token: Authorization: Bearer …"
	if ok {
		detail = "this token is not known here; is all of it there, and is it one of this server's?"
	}
	return nil, &problem{
		Status: http.StatusUnauthorized, Title: "who are you?", Detail: detail,
		header: http.Header{"WWW-Authenticate": {`Bearer realm="sema"`}},
	}
}
