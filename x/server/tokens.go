package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/sema-go/sema/fleet"
)

// A Verb is a kind of operation that a token may allow.
type Verb string

// The verbs. No verb includes another.
const (
	Read    Verb = "read"    // list, inspect, watch, metrics
	Acquire Verb = "acquire" // and renew, and release
	Admin   Verb = "admin"   // configure, drain, resume, revoke, delete
)

// Verbs returns all verbs.
func Verbs() []Verb { return []Verb{Read, Acquire, Admin} }

// A Token grants verbs on the semaphores whose names have a prefix. Its principal is
// "token:" plus its name. Leases, idempotency keys and limits belong to the name, so they
// survive the rotation of a token.
type Token struct {
	Name   string   `yaml:"name"`   // unique; also logged
	Hash   string   `yaml:"hash"`   // sha256:… of the token, see [HashToken]
	Hashes []string `yaml:"hashes"` // further hashes: both the old and the new token are valid during a rotation
	Prefix string   `yaml:"prefix"` // of the names of semaphores; "" for all
	Verbs  []Verb   `yaml:"verbs"`  // at least one
	Limits Quota    `yaml:"limits"` // of this principal; zero fields have their defaults
}

// HashToken returns the hash of a token, as configurations contain it. Tokens are long and
// random, so a slower hash function is not needed.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashKind + hex.EncodeToString(sum[:])
}

const hashKind = "sha256:"

// tokens maps the hashes of tokens to identities.
type tokens struct {
	all      []Token
	hashes   []tokenHash
	required bool // requests must have a token
}

type tokenHash struct {
	sum      [sha256.Size]byte
	identity *identity
}

// sums returns the hashes of a token entry.
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

// Check fails if no server would accept the token entry.
func (t Token) Check() error {
	if t.Name == "" {
		return errors.New("a token has no name: want one, for the log")
	}
	if err := checkText(t.Name); err != nil {
		return fmt.Errorf("token %q: name: %w", t.Name, err)
	}
	if _, err := t.sums(); err != nil {
		return err
	}
	if len(t.Verbs) == 0 {
		return fmt.Errorf("token %q has no verbs: want some of verbs: [read, acquire, admin]", t.Name)
	}
	for _, v := range t.Verbs {
		if !slices.Contains(Verbs(), v) {
			return fmt.Errorf("token %q: unknown verb %q: want read, acquire or admin", t.Name, v)
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

// checkText fails if a text must not be part of a principal.
func checkText(text string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return errors.New("it contains unprintable characters")
	}
	return nil
}

func newTokens(all []Token) (*tokens, error) {
	known := &tokens{all: all, required: len(all) > 0}
	names := map[string]bool{}
	for _, t := range all {
		if err := t.Check(); err != nil {
			return nil, err
		}
		if names[t.Name] {
			return nil, fmt.Errorf("two tokens are named %q: leases and limits belong to the name; use different names, or list the hashes of one token with hashes: […]", t.Name)
		}
		names[t.Name] = true
		i := &identity{name: t.Name, principal: "token:" + t.Name, prefix: t.Prefix, verbs: t.Verbs}
		sums, _ := t.sums()
		for _, sum := range sums {
			for _, other := range known.hashes {
				if other.sum == sum {
					return nil, fmt.Errorf("tokens %q and %q have the same hash; create another one with `sema token`", other.identity.name, t.Name)
				}
			}
			known.hashes = append(known.hashes, tokenHash{sum, i})
		}
	}
	return known, nil
}

// find returns the identity of a token. It compares all hashes in constant time, so that its
// duration reveals nothing.
func (t *tokens) find(token string) (found *identity) {
	sum := sha256.Sum256([]byte(token))
	for i := range t.hashes {
		if subtle.ConstantTimeCompare(sum[:], t.hashes[i].sum[:]) == 1 {
			found = t.hashes[i].identity
		}
	}
	return found
}

// SetTokens replaces the tokens. Leases, waits and streams of removed tokens continue; their
// next request is rejected. If a token is invalid, SetTokens changes nothing. A server
// requires tokens from its start or never: the first token cannot be added, and the last one
// cannot be removed.
func (s *Server) SetTokens(all []Token) error {
	known, err := newTokens(all)
	if err != nil {
		return err
	}
	if known.required != s.service.tokens.Load().required {
		return errors.New("tokens: the first token cannot be added, nor the last one removed, while the server runs (restart it)")
	}
	s.service.tokens.Store(known)
	s.service.accounts.refresh()
	return nil
}
