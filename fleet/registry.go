package fleet

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/sema-go/sema"
)

// A Factory opens a store by its URL.
type Factory func(ctx context.Context, u *url.URL) (Store, error)

var factories = struct {
	mu       sync.Mutex
	byScheme map[string]Factory
}{byScheme: map[string]Factory{}}

// Register has [Open] use f for URLs of a scheme. Packages of engines do so when
// they are imported. It panics if the scheme is taken.
func Register(scheme string, f Factory) {
	factories.mu.Lock()
	defer factories.mu.Unlock()
	if factories.byScheme[scheme] != nil {
		panic(fmt.Sprintf("fleet: Register(%q): there is an engine for it already", scheme))
	}
	factories.byScheme[scheme] = f
}

// Open opens a client of the engine at a URL: "mem:", "sqlite:///path", … The
// engine's package must be imported; x/stores imports all of them.
func Open(ctx context.Context, engine string) (*Client, error) {
	store, err := OpenStore(ctx, engine)
	if err != nil {
		return nil, err
	}
	return New(store), nil
}

// OpenStore opens the engine itself, for those who need no client of their own or
// several.
func OpenStore(ctx context.Context, engine string) (Store, error) {
	u, err := url.Parse(engine)
	if err != nil {
		// The text of the error has the whole URL in it, and that may have a password.
		return nil, &sema.Error{Op: "open", Err: sema.ErrInvalid, Detail: "the engine's URL cannot be parsed"}
	}
	factories.mu.Lock()
	f := factories.byScheme[u.Scheme]
	known := slices.Sorted(maps.Keys(factories.byScheme))
	factories.mu.Unlock()
	if f == nil {
		return nil, &sema.Error{Op: "open", Err: sema.ErrInvalid,
			Detail: fmt.Sprintf("no engine for %q URLs (there are: %s); import its package, or x/stores for all", u.Scheme, strings.Join(known, ", "))}
	}
	return f(ctx, u)
}
