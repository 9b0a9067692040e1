package redisstore

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/internal/tlsfiles"
)

func init() {
	for _, scheme := range []string{"redis", "rediss"} {
		fleet.Register(scheme, func(ctx context.Context, u *url.URL) (fleet.Store, error) {
			o, err := parse(u)
			if err != nil {
				return nil, err
			}
			return Open(ctx, o)
		})
	}
}

// A parameter sets an option from the query of a URL.
type parameter func(o *Options, files *tlsfiles.Files, value string) error

var parameters = map[string]parameter{
	"prefix":   text(func(o *Options) *string { return &o.Prefix }),
	"sentinel": text(func(o *Options) *string { return &o.Sentinel }),
	"sentinel_user": text(func(o *Options) *string {
		return &o.SentinelUsername
	}),
	"sentinel_password": text(func(o *Options) *string {
		return &o.SentinelPassword
	}),
	"cluster": onOff(func(o *Options) *bool { return &o.Cluster }),
	"sharded": onOff(func(o *Options) *bool { return &o.Sharded }),
	"addrs": func(o *Options, _ *tlsfiles.Files, value string) error {
		for address := range strings.SplitSeq(value, ",") {
			o.Addresses = append(o.Addresses, strings.TrimSpace(address))
		}
		return nil
	},
	"promotion": func(o *Options, _ *tlsfiles.Files, value string) (err error) {
		if o.Promotion, err = time.ParseDuration(value); err != nil || o.Promotion <= 0 {
			return fmt.Errorf("promotion=%s: want a time such as 12s", value)
		}
		return nil
	},
	"eviction": func(o *Options, _ *tlsfiles.Files, value string) error {
		switch value {
		case "allow":
			o.AllowEviction = true
		case "reject":
		default:
			return fmt.Errorf("want reject or allow, not %q", value)
		}
		return nil
	},
	"ca":          func(_ *Options, f *tlsfiles.Files, value string) error { f.CA = value; return nil },
	"cert":        func(_ *Options, f *tlsfiles.Files, value string) error { f.Cert = value; return nil },
	"key":         func(_ *Options, f *tlsfiles.Files, value string) error { f.Key = value; return nil },
	"server_name": func(_ *Options, f *tlsfiles.Files, value string) error { f.ServerName = value; return nil },
}

func text(field func(*Options) *string) parameter {
	return func(o *Options, _ *tlsfiles.Files, value string) error {
		*field(o) = value
		return nil
	}
}

func onOff(field func(*Options) *bool) parameter {
	return func(o *Options, _ *tlsfiles.Files, value string) (err error) {
		if *field(o), err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("want 1 or 0, not %q", value)
		}
		return nil
	}
}

// parse parses redis://user:password@host:port/db?parameters.
func parse(u *url.URL) (o Options, err error) {
	if u.Opaque != "" || u.Host == "" || u.Fragment != "" {
		return o, invalid("want %s://user:password@host:port/db?prefix=…", u.Scheme)
	}
	o.Addresses = strings.Split(u.Host, ",")
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
	if db := strings.Trim(u.Path, "/"); db != "" {
		if o.DB, err = strconv.Atoi(db); err != nil || o.DB < 0 {
			return o, invalid("path %q: want the number of a database, such as /0", u.Path)
		}
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return o, invalid("the parameters after the ? cannot be parsed")
	}
	var files tlsfiles.Files
	for _, key := range slices.Sorted(maps.Keys(values)) {
		set := parameters[key]
		if set == nil {
			return o, invalid("parameter %q is not known; there are: %s", key, strings.Join(slices.Sorted(maps.Keys(parameters)), ", "))
		}
		if len(values[key]) > 1 {
			return o, invalid("parameter %q is given %d times", key, len(values[key]))
		}
		if err := set(&o, &files, values[key][0]); err != nil {
			return o, invalid("%s: %v", key, err)
		}
	}
	if u.Scheme == "rediss" {
		if o.TLS, err = files.Config(); err != nil {
			err = invalid("%v", err)
		}
	} else if files != (tlsfiles.Files{}) {
		err = invalid("ca, cert, key and server_name are for rediss://")
	}
	return o, err
}

// withPort adds the default port to an address without one.
func (o *Options) withPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	port := "6379"
	if o.Sentinel != "" {
		port = "26379"
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), port)
}

// check rejects invalid options and sets defaults.
func (o *Options) check() error {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.Promotion == 0 {
		o.Promotion = defaultPromotion
	}
	o.Addresses = slices.Clone(o.Addresses)
	for i, address := range o.Addresses {
		o.Addresses[i] = o.withPort(address)
	}
	modes := 0
	for _, mode := range []bool{o.Sentinel != "", o.Cluster, o.Sharded} {
		if mode {
			modes++
		}
	}
	switch {
	case len(o.Addresses) == 0:
		return invalid("no address")
	case modes > 1:
		return invalid("want one of sentinel, cluster and sharded")
	case len(o.Addresses) > 1 && modes == 0:
		return invalid("%d addresses: want sentinel=name for Sentinels, cluster=1 for a cluster, sharded=1 for independent servers, or the address of the primary alone", len(o.Addresses))
	case o.Cluster && o.DB != 0:
		return invalid("database %d: a cluster has only database 0", o.DB)
	case len(o.Prefix) > maxPrefix:
		return invalid("prefix of %d bytes: want at most %d", len(o.Prefix), maxPrefix)
	}
	for _, r := range o.Prefix {
		if r <= ' ' || r > '~' || r == '{' || r == '}' {
			return invalid("prefix: %q is not allowed; use printable ASCII without spaces and braces", r)
		}
	}
	return nil
}

// maxPrefix is the maximum length of a prefix in bytes, the same as for names.
const maxPrefix = 200

func invalid(format string, args ...any) error {
	return &sema.Error{Op: "open", Err: sema.ErrInvalid, Detail: "redis: " + fmt.Sprintf(format, args...)}
}
