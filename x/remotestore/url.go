package remotestore

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/internal/tlsfiles"
)

func init() {
	for _, scheme := range []string{plainScheme, secureScheme} {
		fleet.Register(scheme, func(ctx context.Context, u *url.URL) (fleet.Store, error) {
			options, err := parse(u)
			if err != nil {
				return nil, err
			}
			return Open(ctx, options)
		})
	}
}

const (
	plainScheme  = "sema"
	secureScheme = "semas"

	// DefaultPort is the service's, unless a URL has another one: SEMA on a phone.
	DefaultPort = "7362"

	// TokenVariable is the environment variable with the token of those whose URL
	// has none.
	TokenVariable = "SEMA_TOKEN"
)

// Options are how a service is reached.
type Options struct {
	// Hosts are servers of the service, as host:port. They are tried in turn when
	// one does not answer. All of them serve the same engine.
	Hosts []string
	// TLS is for servers that are reached by it; nil: without.
	TLS *tls.Config
	// Token is shown to the service, if not empty.
	Token string
	// TokenFile has the token, and is read again when the service refuses it.
	TokenFile string
	// Lazy opens the store without a check whether the service can be reached and
	// knows the token, for programs that start while it is away.
	Lazy bool
}

// A reading is a URL half read.
type reading struct {
	Options
	open  string
	files tlsfiles.Files
}

// parameters are what may follow the ? of a URL.
var parameters = map[string]func(*reading, string){
	"open":       func(r *reading, value string) { r.open = value },
	"hosts":      func(r *reading, value string) { r.Hosts = append(r.Hosts, strings.Split(value, ",")...) },
	"token":      func(r *reading, value string) { r.Token = value },
	"token_file": func(r *reading, value string) { r.TokenFile = value },
	"ca":         func(r *reading, value string) { r.files.CA = value },
	"cert":       func(r *reading, value string) { r.files.Cert = value },
	"key":        func(r *reading, value string) { r.files.Key = value },
}

// parse reads sema://host:port,host:port?parameters, or semas://….
func parse(u *url.URL) (o Options, err error) {
	if u.Opaque != "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		return o, invalid("want %s://host:port,host:port?token_file=…, without a path or fragment", u.Scheme)
	}
	if u.User != nil {
		return o, invalid("want no user before the host; a token is given as token_file=…, as token=… or in %s", TokenVariable)
	}
	r := reading{}
	if u.Host != "" {
		r.Hosts = strings.Split(u.Host, ",")
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return o, invalid("what follows the ? cannot be parsed") // and may have a token in it
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		set := parameters[key]
		switch {
		case set == nil:
			return o, invalid("parameter %q is not known; there are: %s", key, strings.Join(slices.Sorted(maps.Keys(parameters)), ", "))
		case len(values[key]) > 1:
			return o, invalid("parameter %q is given %d times", key, len(values[key]))
		case values[key][0] == "":
			return o, invalid("parameter %q is empty; leave it out", key)
		}
		set(&r, values[key][0])
	}
	switch r.open {
	case "", "check":
	case "lazy":
		r.Lazy = true
	default:
		return o, invalid("open=%s: want check or lazy", r.open)
	}
	if r.Token == "" && r.TokenFile == "" {
		r.Token = os.Getenv(TokenVariable)
	}
	if r.TLS, err = r.tlsConfig(u.Scheme == secureScheme); err != nil {
		return o, invalid("%v", err)
	}
	return r.Options, nil
}

func (r *reading) tlsConfig(secure bool) (*tls.Config, error) {
	switch {
	case secure:
		return r.files.Config()
	case r.files != tlsfiles.Files{}:
		return nil, fmt.Errorf("ca, cert and key are for %s://…, which is with TLS", secureScheme)
	}
	return nil, nil
}

// addresses are the hosts with their ports.
func (o Options) addresses() ([]string, error) {
	if len(o.Hosts) == 0 {
		return nil, invalid("there is no host; want %s://host:port", plainScheme)
	}
	addresses := make([]string, len(o.Hosts))
	for i, host := range o.Hosts {
		address := host
		if _, _, err := net.SplitHostPort(host); err != nil {
			address = net.JoinHostPort(strings.Trim(host, "[]"), DefaultPort)
		}
		name, port, err := net.SplitHostPort(address)
		if err != nil || name == "" || port == "" || strings.ContainsAny(name, "/?#@ ") {
			return nil, invalid("host %q: want host:port", host)
		}
		if slices.Contains(addresses[:i], address) {
			return nil, invalid("host %q is named twice", host)
		}
		addresses[i] = address
	}
	return addresses, nil
}

func invalid(format string, args ...any) error {
	return &sema.Error{Op: "open", Err: sema.ErrInvalid, Detail: "service: " + fmt.Sprintf(format, args...)}
}
