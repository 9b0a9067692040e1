package pgstore

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
)

func init() {
	for _, scheme := range []string{"postgres", "postgresql"} {
		fleet.Register(scheme, func(ctx context.Context, u *url.URL) (fleet.Store, error) {
			database, options, err := parse(u)
			if err != nil {
				return nil, err
			}
			return Open(ctx, database, options)
		})
	}
}

// parameters are the URL parameters of this package. Others are for pgx, or settings for
// the server, which rejects unknown ones.
var parameters = map[string]func(*Options, string) error{
	"prefix": func(o *Options, value string) error {
		o.Prefix = value
		return nil
	},
	"sema_schema": func(o *Options, value string) error {
		o.Schema = value
		return nil
	},
	"sema_listen": func(o *Options, value string) error {
		o.Listen = value
		return nil
	},
	"sema_poll": func(o *Options, value string) (err error) {
		if o.Poll, err = time.ParseDuration(value); err != nil || o.Poll <= 0 {
			return fmt.Errorf("sema_poll=%s: want a duration, such as 500ms", value)
		}
		return nil
	},
	"sema_migrate": func(o *Options, value string) error {
		switch value {
		case "auto":
		case "off":
			o.Unmigrated = true
		default:
			return fmt.Errorf("sema_migrate=%s: want auto or off", value)
		}
		return nil
	},
}

// parse removes the parameters of this package from a URL. The rest is for pgx.
func parse(u *url.URL) (database string, o Options, err error) {
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", o, invalid("want postgres://user:password@host:5432/database, not a URL of scheme %q", u.Scheme)
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", o, invalid("the parameters after the ? cannot be parsed") // the text of err may contain a password
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		set := parameters[key]
		switch {
		case set == nil && strings.HasPrefix(key, "sema_"):
			return "", o, invalid("parameter %q is not known; there are: %s; and those of pgx and of the server",
				key, strings.Join(slices.Sorted(maps.Keys(parameters)), ", "))
		case set == nil:
			continue
		case len(values[key]) > 1:
			return "", o, invalid("parameter %q is given %d times", key, len(values[key]))
		}
		if err := set(&o, values[key][0]); err != nil {
			return "", o, invalid("%v", err)
		}
		delete(values, key)
	}
	rest := *u
	rest.RawQuery = values.Encode()
	return rest.String(), o, nil
}

// hasSetting reports whether a connection string has a setting.
func hasSetting(database, key string) bool { return strings.Contains(database, key+"=") }

// check rejects options that cannot be part of a name, or of a statement.
func (o Options) check() error {
	if len(o.Prefix) > maxPrefix {
		return invalid("prefix of %d bytes: want at most %d", len(o.Prefix), maxPrefix)
	}
	for _, r := range o.Prefix {
		if r <= ' ' || r > '~' || r == '{' || r == '}' {
			return invalid("prefix: %q is not allowed; use printable ASCII without spaces and braces", r)
		}
	}
	if len(o.Schema) > maxSchema || strings.ContainsRune(o.Schema, 0) || strings.HasPrefix(o.Schema, "pg_") {
		return invalid("schema %q: want a name of at most %d bytes that does not begin with pg_", o.Schema, maxSchema)
	}
	if o.Listen != listenAuto && o.Listen != listenPoll {
		if _, _, err := net.SplitHostPort(o.Listen); err != nil {
			return invalid("sema_listen=%s: want auto, poll, or the host:port of the server itself", o.Listen)
		}
	}
	return nil
}

const (
	maxPrefix = 200 // bytes, as for names of semaphores
	maxSchema = 63  // bytes, as for identifiers of PostgreSQL
)

func invalid(format string, args ...any) error {
	return &sema.Error{Op: "open", Err: sema.ErrInvalid, Detail: "postgres: " + fmt.Sprintf(format, args...)}
}

// unparsable returns an error without the text of pgx, which may have the password in it.
func unparsable(error) error {
	return invalid("the settings cannot be parsed; want postgres://user:password@host:5432/database?sslmode=…, several hosts as ?host=a,b&port=5432,5433")
}

// addressOf returns the address of the server, for messages.
func addressOf(c *pgconn.Config) string {
	addresses := []string{net.JoinHostPort(c.Host, fmt.Sprint(c.Port))}
	if strings.HasPrefix(c.Host, "/") {
		addresses[0] = c.Host
	}
	for _, f := range c.Fallbacks {
		if other := net.JoinHostPort(f.Host, fmt.Sprint(f.Port)); f.Host != "" && f.Host[0] != '/' && !slices.Contains(addresses, other) {
			addresses = append(addresses, other)
		}
	}
	return strings.Join(addresses, ",") + "/" + c.Database
}
