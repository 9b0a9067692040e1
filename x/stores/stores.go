// Package stores links every store for fleet semaphores, so that
// [github.com/sema-go/sema/fleet.Open] accepts all their URLs.
package stores

import (
	"context"
	"net/url"

	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/fleet/memstore" // mem:
	_ "github.com/sema-go/sema/x/etcdstore"    // etcd:
	_ "github.com/sema-go/sema/x/pgstore"      // postgres:, postgresql:
	_ "github.com/sema-go/sema/x/redisstore"   // redis:, rediss:
	_ "github.com/sema-go/sema/x/remotestore"  // sema:, semas:
	_ "github.com/sema-go/sema/x/sqlitestore"  // sqlite:
)

// An Option changes how [Open] opens a store.
type Option func(*options)

type options struct{ readOnly, anySettings bool }

// ReadOnly opens a store for programs that only list and inspect. Nothing is
// created or migrated:
//
//   - sqlite: the file is opened with mode=ro, also while another process owns
//     it. A missing file is [io/fs.ErrNotExist]; an older schema is an error.
//   - postgres: the tables are used as they are (sema_migrate=off). Missing or
//     older tables are an error.
//   - the other stores have no schema, and are opened as usual.
//
// Methods that write fail on SQLite with [errors.ErrUnsupported]; other stores do
// not reject them.
func ReadOnly() Option { return func(o *options) { o.readOnly = true } }

// AnySettings opens a store also if the settings of its server allow that permits are
// lost, which Open rejects otherwise (eviction=allow on Redis). It is for programs that
// examine the server.
func AnySettings() Option { return func(o *options) { o.anySettings = true } }

// Open opens the store at a URL, as [fleet.OpenStore] does, with options.
func Open(ctx context.Context, store string, opts ...Option) (fleet.Store, error) {
	var o options
	for _, set := range opts {
		set(&o)
	}
	if o.readOnly {
		store = withParameter(store, readOnlyParameters)
	}
	if o.anySettings {
		store = withParameter(store, anySettingsParameters)
	}
	return fleet.OpenStore(ctx, store)
}

// readOnlyParameters are the URL parameters, by scheme, with which a store creates
// and migrates nothing.
var readOnlyParameters = map[string][2]string{
	"sqlite":     {"mode", "ro"},
	"postgres":   {"sema_migrate", "off"},
	"postgresql": {"sema_migrate", "off"},
}

// anySettingsParameters are the URL parameters, by scheme, with which a store rejects no
// settings of its server.
var anySettingsParameters = map[string][2]string{
	"redis":  {"eviction", "allow"},
	"rediss": {"eviction", "allow"},
}

// withParameter returns the URL with its scheme's parameter set. A URL that cannot
// be parsed is left for the store to reject.
func withParameter(store string, byScheme map[string][2]string) string {
	u, err := url.Parse(store)
	if err != nil {
		return store
	}
	values, err := url.ParseQuery(u.RawQuery)
	parameter, ok := byScheme[u.Scheme]
	if err != nil || !ok {
		return store
	}
	values.Set(parameter[0], parameter[1])
	u.RawQuery = values.Encode()
	return u.String()
}
