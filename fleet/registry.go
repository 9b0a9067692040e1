package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/sema-go/sema"
)

// A Factory opens the store at a URL.
type Factory func(ctx context.Context, u *url.URL) (Store, error)

var factories = struct {
	mu       sync.Mutex
	byScheme map[string]Factory
}{byScheme: map[string]Factory{}}

// Register makes [Open] use f for the URLs of a scheme. Store packages call it in init. It
// panics if the scheme is already registered.
func Register(scheme string, f Factory) {
	factories.mu.Lock()
	defer factories.mu.Unlock()
	if factories.byScheme[scheme] != nil {
		panic(fmt.Sprintf("fleet: Register(%q): the scheme is already registered", scheme))
	}
	factories.byScheme[scheme] = f
}

// Open returns a client of the store at a URL: "mem:", "sqlite:///path", … The package of
// the store must be imported; x/stores imports all of them. If the store does not reply in
// time, or before the deadline of ctx, the error wraps [sema.ErrUnavailable].
func Open(ctx context.Context, storeURL string) (*Client, error) {
	store, err := OpenStore(ctx, storeURL)
	if err != nil {
		return nil, err
	}
	return New(store), nil
}

// wantURL is the advice for a text that is no URL.
const wantURL = "name the store as in redis://host:6379 or sqlite:///path"

// OpenStore opens the store at a URL, for programs that need no client, or several.
func OpenStore(ctx context.Context, storeURL string) (Store, error) {
	if err := checkContext(ctx, "open", ""); err != nil {
		return nil, err
	}
	u, err := url.Parse(storeURL)
	if err != nil {
		// The error contains the URL, which may contain a password.
		return nil, &sema.Error{Op: "open", Err: sema.ErrInvalid, Detail: "the URL of the store cannot be parsed", Advice: wantURL}
	}
	factories.mu.Lock()
	f := factories.byScheme[u.Scheme]
	known := strings.Join(slices.Sorted(maps.Keys(factories.byScheme)), ", ")
	factories.mu.Unlock()
	known = cmp.Or(known, "none")
	if u.Scheme == "" {
		what := "has no scheme"
		if storeURL == "" {
			what = "is empty"
		}
		return nil, &sema.Error{Op: "open", Err: sema.ErrInvalid, Detail: fmt.Sprintf("the URL of the store %s (registered: %s)", what, known), Advice: wantURL}
	}
	if f == nil {
		return nil, &sema.Error{Op: "open", Err: sema.ErrInvalid,
			Detail: fmt.Sprintf("no store for %q URLs (registered: %s)", u.Scheme, known), Advice: "import the package of the store, or x/stores for all"}
	}
	store, err := f(ctx, u)
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(err, context.Cause(ctx))
	if err != nil && late && FaultOf(err) == "" && !errors.Is(err, sema.ErrUnavailable) && !errors.Is(err, sema.ErrInvalid) {
		return nil, fmt.Errorf("%w: open %s://%s: %w", sema.ErrUnavailable, u.Scheme, u.Host, err) // without the user and the password
	}
	return store, err
}
