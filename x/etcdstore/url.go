package etcdstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/internal/tlsfiles"
)

func init() {
	fleet.Register("etcd", func(ctx context.Context, u *url.URL) (fleet.Store, error) {
		options, err := parse(u)
		if err != nil {
			return nil, err
		}
		return Open(ctx, options)
	})
}

// Options configure the connection to a cluster and the use of it.
type Options struct {
	// Endpoints are the members, as host:port.
	Endpoints []string
	// User and Password are for clusters with authentication; default none.
	User, Password string
	// TLS is for members that are reached by TLS; nil: without TLS.
	TLS *tls.Config
	// Prefix is the beginning of all keys; default "sema/".
	Prefix string
	// Idle is the time after which a semaphore is deleted that has no sessions and whose
	// configuration was never changed. The next client that opens it creates it again with
	// the same configuration. Default 24h; negative: never.
	Idle time.Duration
	// Lazy opens the store without a check whether etcd can be reached and serves this
	// user, for programs that start while etcd is unavailable.
	Lazy bool
}

// parameters are the parameters of a URL.
var parameters = map[string]func(*urlSettings, string) error{
	"endpoints": func(r *urlSettings, value string) error {
		r.Endpoints = append(r.Endpoints, strings.Split(value, ",")...)
		return nil
	},
	"prefix": func(r *urlSettings, value string) error {
		r.Prefix = value
		return nil
	},
	"idle": func(r *urlSettings, value string) (err error) {
		if r.Idle, err = time.ParseDuration(value); err != nil || r.Idle == 0 {
			return fmt.Errorf("idle=%s: want a duration, such as 24h; or a negative one for never", value)
		}
		return nil
	},
	"open": func(r *urlSettings, value string) error {
		switch value {
		case "check":
		case "lazy":
			r.Lazy = true
		default:
			return fmt.Errorf("open=%s: want check or lazy", value)
		}
		return nil
	},
	"tls": func(r *urlSettings, value string) error {
		switch value {
		case "on":
			r.secure = true
		case "off":
			r.plain = true
		default:
			return fmt.Errorf("tls=%s: want on or off", value)
		}
		return nil
	},
	"ca":   func(r *urlSettings, value string) error { r.files.CA = value; return nil },
	"cert": func(r *urlSettings, value string) error { r.files.Cert = value; return nil },
	"key":  func(r *urlSettings, value string) error { r.files.Key = value; return nil },
}

// urlSettings are the settings of a URL while it is parsed.
type urlSettings struct {
	Options
	secure, plain bool
	files         tlsfiles.Files
}

// parse parses etcd://user:password@host:port,host:port/?parameters.
func parse(u *url.URL) (o Options, err error) {
	if u.Opaque != "" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		return o, invalid("want etcd://host:port,host:port/?prefix=…, without a path or fragment")
	}
	r := urlSettings{Options: Options{Endpoints: strings.Split(u.Host, ",")}}
	if u.User != nil {
		r.User = u.User.Username()
		r.Password, _ = u.User.Password()
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return o, invalid("the parameters after the ? cannot be parsed")
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		set := parameters[key]
		if set == nil {
			return o, invalid("parameter %q is not known; there are: %s", key, strings.Join(slices.Sorted(maps.Keys(parameters)), ", "))
		}
		if len(values[key]) > 1 {
			return o, invalid("parameter %q is given %d times", key, len(values[key]))
		}
		if err := set(&r, values[key][0]); err != nil {
			return o, invalid("%v", err)
		}
	}
	for i, endpoint := range r.Endpoints {
		if r.Endpoints[i], err = withPort(endpoint); err != nil {
			return o, invalid("%v", err)
		}
	}
	if r.TLS, err = r.tlsConfig(); err != nil {
		return o, invalid("%v", err)
	}
	return r.Options, nil
}

// withPort returns an endpoint with a port: etcd's usual one, if it has none.
func withPort(endpoint string) (string, error) {
	if endpoint == "" || strings.Contains(endpoint, "/") {
		return "", fmt.Errorf("member %q: want host:port", endpoint)
	}
	if _, _, err := net.SplitHostPort(endpoint); err == nil {
		return endpoint, nil
	}
	endpoint = net.JoinHostPort(strings.Trim(endpoint, "[]"), "2379")
	if _, _, err := net.SplitHostPort(endpoint); err != nil {
		return "", fmt.Errorf("member %q: want host:port", endpoint)
	}
	return endpoint, nil
}

func (r *urlSettings) tlsConfig() (*tls.Config, error) {
	switch named := r.files != (tlsfiles.Files{}); {
	case !named && !r.secure:
		return nil, nil
	case r.plain:
		return nil, fmt.Errorf("tls=off, but there are ca, cert or key")
	}
	return r.files.Config() // each member must have a certificate for its own address
}

// config returns the configuration of etcd's client. It also sets the defaults.
func (o *Options) config() (c clientv3.Config, err error) {
	if o.Prefix == "" {
		o.Prefix = "sema/"
	}
	if o.Idle == 0 {
		o.Idle = 24 * time.Hour
	}
	if len(o.Endpoints) == 0 {
		return c, invalid("there is no member of the cluster to reach")
	}
	if len(o.Prefix) > maxPrefix {
		return c, invalid("prefix of %d bytes: want at most %d", len(o.Prefix), maxPrefix)
	}
	for _, r := range o.Prefix {
		if r <= ' ' || r > '~' || r == '{' || r == '}' {
			return c, invalid("prefix: %q is not allowed; use printable ASCII without spaces and braces", r)
		}
	}
	return clientv3.Config{
		Endpoints: o.Endpoints, Username: o.User, Password: o.Password, TLS: o.TLS,
		MaxUnaryRetries: 2, // the store itself retries what can be retried
		DialTimeout:     dialTimeout, DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAlive / 2,
		Logger: zap.NewNop(), // errors have what matters
	}, nil
}

const (
	maxPrefix   = 200 // bytes, as for names of semaphores
	dialTimeout = 2 * time.Second
	// keepAlive is the interval at which idle connections are probed. Servers reject
	// probes that are more frequent than every five seconds.
	keepAlive = 6 * time.Second
)

func invalid(format string, args ...any) error {
	return &sema.Error{Op: "open", Err: sema.ErrInvalid, Detail: "etcd: " + fmt.Sprintf(format, args...)}
}
