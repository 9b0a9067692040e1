package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/sema-go/sema/fleet"
)

// A Verb is a kind of action that a token may allow.
type Verb string

// The verbs. One does not include another.
const (
	Read    Verb = "read"    // list, inspect, watch, metrics
	Acquire Verb = "acquire" // and renew, and release
	Admin   Verb = "admin"   // configure, drain, resume, revoke, delete
)

// Verbs returns all verbs there are.
func Verbs() []Verb { return []Verb{Read, Acquire, Admin} }

// A Token grants verbs on the semaphores of a prefix. Its principal is
// "token:" and its name: leases, idempotency keys and limits belong to the name,
// so that they survive a new token under the same name.
type Token struct {
	Name   string   `yaml:"name"`   // unique; for the log as well
	Hash   string   `yaml:"hash"`   // sha256:… of the token, see [HashToken]
	Hashes []string `yaml:"hashes"` // more of them: while tokens are rotated, both the old and the new one count
	Prefix string   `yaml:"prefix"` // of the names of semaphores; "" for all
	Verbs  []Verb   `yaml:"verbs"`  // at least one
	Limits Quota    `yaml:"limits"` // of this principal; zero fields have their defaults
}

// HashToken returns what a configuration contains of a token. Tokens are long and
// random, so that no slower hash function is needed.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashKind + hex.EncodeToString(sum[:])
}

const hashKind = "sha256:"

// An identity is what a request is made as. Its principal is the key of everything
// that belongs to it: "token:<name>", "cert:<issuer key hash>/<name>", or "" where
// no authentication is configured.
type identity struct {
	name      string // for people
	principal string
	prefix    string
	verbs     []Verb
}

// everybody is the identity where no authentication is configured.
var everybody = &identity{name: "anonymous", verbs: Verbs()}

func (i *identity) may(verb Verb, semaphore string) bool {
	return strings.HasPrefix(semaphore, i.prefix) && slices.Contains(i.verbs, verb)
}

// allow fails if the identity may not do that.
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

// tokens are the identities by the hashes of their tokens.
type tokens struct {
	all    []Token
	hashes []tokenHash
}

type tokenHash struct {
	sum [sha256.Size]byte
	who *identity
}

// sums returns the hashes of all tokens of an entry.
func (t Token) sums() (sums [][sha256.Size]byte, err error) {
	texts := t.Hashes
	if t.Hash != "" || len(texts) == 0 {
		texts = append([]string{t.Hash}, texts...)
	}
	for _, text := range texts {
		digits, ours := strings.CutPrefix(text, hashKind)
		raw, err := hex.DecodeString(digits)
		if err != nil || !ours || len(raw) != sha256.Size {
			return nil, fmt.Errorf("token %q: want a hash of %s and 64 hexadecimal digits, as `sema token` prints it", t.Name, hashKind)
		}
		sums = append(sums, [sha256.Size]byte(raw))
	}
	return sums, nil
}

// Check fails on a token that no server accepts.
func (t Token) Check() error {
	if t.Name == "" {
		return errors.New("a token has no name; give it one, for the log")
	}
	if err := checkText(t.Name); err != nil {
		return fmt.Errorf("token %q: name: %w", t.Name, err)
	}
	if _, err := t.sums(); err != nil {
		return err
	}
	if len(t.Verbs) == 0 {
		return fmt.Errorf("token %q has no verbs, and could do nothing; list those it needs: verbs: [read, acquire, admin]", t.Name)
	}
	for _, v := range t.Verbs {
		if !slices.Contains(Verbs(), v) {
			return fmt.Errorf("token %q: there is no verb %q; want read, acquire or admin", t.Name, v)
		}
	}
	if t.Prefix != "" {
		if err := fleet.CheckName(t.Prefix); err != nil {
			return fmt.Errorf("token %q: prefix: %w", t.Name, err)
		}
	}
	if err := t.Limits.check(); err != nil {
		return fmt.Errorf("token %q: %w", t.Name, err)
	}
	return nil
}

// checkText fails on text that must not be part of a principal.
func checkText(text string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return errors.New("it contains characters that cannot be printed")
	}
	return nil
}

func newTokens(all []Token) (*tokens, error) {
	known := &tokens{all: all}
	names := map[string]bool{}
	for _, t := range all {
		if err := t.Check(); err != nil {
			return nil, err
		}
		if names[t.Name] {
			return nil, fmt.Errorf("two tokens are named %q; leases and limits belong to the name: give each its own, or list the hashes of one with hashes: […]", t.Name)
		}
		names[t.Name] = true
		i := &identity{name: t.Name, principal: "token:" + t.Name, prefix: t.Prefix, verbs: t.Verbs}
		sums, _ := t.sums()
		for _, sum := range sums {
			for _, other := range known.hashes {
				if other.sum == sum {
					return nil, fmt.Errorf("tokens %q and %q have the same hash; make another one with `sema token`", other.who.name, t.Name)
				}
			}
			known.hashes = append(known.hashes, tokenHash{sum, i})
		}
	}
	return known, nil
}

// required reports whether requests need a token.
func (t *tokens) required() bool { return len(t.hashes) > 0 }

// find compares with all of them, so that the time it takes reveals nothing.
func (t *tokens) find(token string) (found *identity) {
	sum := sha256.Sum256([]byte(token))
	for i := range t.hashes {
		if subtle.ConstantTimeCompare(sum[:], t.hashes[i].sum[:]) == 1 {
			found = t.hashes[i].who
		}
	}
	return found
}

// SetTokens replaces the tokens. Leases, waits and streams of tokens that are gone
// go on; their next request is rejected. It changes nothing if one of them is
// invalid. A server asks for tokens from its beginning or never: the first token
// cannot be added, nor the last one removed.
func (s *Server) SetTokens(all []Token) error {
	known, err := newTokens(all)
	if err != nil {
		return err
	}
	if known.required() != s.service.tokens.Load().required() {
		return errors.New("tokens: the first token cannot be added, nor the last one removed, while the server runs; restart it")
	}
	s.service.tokens.Store(known)
	s.service.accounts.refresh()
	return nil
}

// bearer returns the token that a request carries, if it does.
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimLeft(token, " "), strings.EqualFold(scheme, "Bearer") // RFC 9110, section 11.1
}

// identify returns the call of a request, by a token if there is one. It is paired with
// [call.ended].
func (s *service) identify(r *http.Request, token string, ok bool) (*call, error) {
	i, err := s.identity(r, token, ok)
	if err != nil {
		s.journal.warn("unidentified", "request rejected", "from", r.RemoteAddr, "method", r.Method, "path", loggedPath(r), "error", err)
		return nil, err
	}
	return &call{caller: caller{i, s.accounts.of(i.principal), r.RemoteAddr, s.journal}}, nil
}

func (s *service) identity(r *http.Request, token string, ok bool) (*identity, error) {
	if err := s.fromBrowser(r); err != nil {
		return nil, err
	}
	known := s.tokens.Load()
	switch certified := r.TLS != nil && len(r.TLS.VerifiedChains) > 0; {
	case known.required(): // they say who may do what; a certificate does not
	case certified:
		return certificateIdentity(r.TLS.VerifiedChains[0])
	default:
		return everybody, nil
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

// loggedPath returns the path of a request without the id of a lease, which is a secret
// of its holder.
func loggedPath(r *http.Request) string {
	before, _, found := strings.Cut(r.URL.Path, "/leases/")
	if !found {
		return r.URL.Path
	}
	return before + "/leases/…"
}

// isURI tells the names of URI SANs from common names. Others have colons too, such as
// system:node:a.
func isURI(name string) bool {
	return strings.Contains(name, "://") || len(name) >= 4 && strings.EqualFold(name[:4], "urn:")
}

// certificateIdentity names the holder of a client certificate by its first URI
// SAN, or else its common name, and by the key of the authority that has signed
// it: two authorities may use the same names.
func certificateIdentity(chain []*x509.Certificate) (*identity, error) {
	leaf, issuer := chain[0], chain[min(1, len(chain)-1)]
	name, unusable := leaf.Subject.CommonName, ""
	switch {
	case len(leaf.URIs) > 0:
		if name = leaf.URIs[0].String(); !isURI(name) {
			unusable = "its URI SAN cannot be told from a common name; want a URN, or a URI with ://"
		}
	case name == "":
		unusable = "it has neither a URI SAN nor a common name"
	case isURI(name): // it would pass for the URI of another one
		unusable = "its common name is a URI; put it into a URI SAN"
	}
	if err := checkText(name); err != nil && unusable == "" {
		unusable = "its name: " + err.Error()
	}
	if unusable != "" {
		return nil, &problem{Status: http.StatusForbidden, Title: "not allowed", Detail: "the client certificate names nobody: " + unusable}
	}
	key := sha256.Sum256(issuer.RawSubjectPublicKeyInfo)
	return &identity{
		// Fields of a lease's metadata end at spaces: a name must not look like several.
		name: strings.Join(strings.Fields(name), "_"), principal: "cert:" + hex.EncodeToString(key[:16]) + "/" + name, verbs: Verbs(),
	}, nil
}

// A caller is an identity at an address.
type caller struct {
	*identity
	account *account // of its principal; nil outside of a request
	from    string
	journal *journal // of denials; nil outside of a request
}

// allow fails if the caller may not do that, and logs it.
func (c caller) allow(verb Verb, semaphore string) error {
	err := c.identity.allow(verb, semaphore)
	if err != nil && c.journal != nil {
		c.journal.warn("denied", "request denied", "principal", c.principal, "from", c.from, "verb", string(verb), "semaphore", semaphore)
	}
	return err
}

// A call is a request in progress: its caller, and what it has reserved until its
// response is sent.
type call struct {
	caller

	mu    sync.Mutex
	atEnd []func()
}

type callKey struct{}

// in returns the context of the call.
func (c *call) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// ended releases what the call has reserved.
func (c *call) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, release := range c.atEnd {
		release()
	}
	c.atEnd = nil
}

// who returns the caller of a context's call.
func who(ctx context.Context) caller {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.caller
	}
	return caller{identity: everybody}
}

// accountOf returns the account of the caller of a context's call.
func (s *service) accountOf(ctx context.Context) *account {
	c := who(ctx)
	if c.account != nil {
		return c.account
	}
	return s.accounts.of(c.principal)
}

// reading waits for the caller's turn to read a snapshot or a list, which it keeps until
// the response is sent. Replies that may be large weigh more.
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

// sending calls send when it is the caller's turn to read: what a stream sends is in
// memory until its client has read it. It reports whether the stream goes on.
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
