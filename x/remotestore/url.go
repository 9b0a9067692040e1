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

	// DefaultPort is the port of the service if a URL contains none: the digits of SEMA
	// on a phone.
	DefaultPort = "7362"

	// TokenVariable is the environment variable with the token, for URLs without one.
	TokenVariable = "SEMA_TOKEN"
)

// Options configure a store.
type Options struct {
	// Hosts lists the servers of the service as host:port; the default port is
	// DefaultPort. All of them serve the same store. The client uses one, and the next
	// when that one does not reply.
	Hosts []string
	// TLS configures TLS; nil disables it.
	TLS *tls.Config
	// Token is sent to the service with each request; "" for none.
	Token string
	// TokenFile names a file that contains the token; "" for none. It is read again
	// when the service rejects the token.
	TokenFile string
	// Lazy opens the store without a check that the service can be reached and knows
	// the token. It is for programs that may start while the service is down.
	Lazy bool
}

// A parsedURL collects the parameters of a URL.
type parsedURL struct {
	Options
	open  string
	files tlsfiles.Files
}

// parameters are the parameters of a URL.
var parameters = map[string]func(*parsedURL, string){
	"open":       func(r *parsedURL, value string) { r.open = value },
	"hosts":      func(r *parsedURL, value string) { r.Hosts = append(r.Hosts, strings.Split(value, ",")...) },
	"token":      func(r *parsedURL, value string) { r.Token = value },
	"token_file": func(r *parsedURL, value string) { r.TokenFile = value },
	"ca":         func(r *parsedURL, value string) { r.files.CA = value },
	"cert":       func(r *parsedURL, value string) { r.files.Cert = value },
	"key":        func(r *parsedURL, value string) { r.files.Key = value },
}

// parse parses sema://host:port,host:port?parameters, or semas://….
func parse(u *url.URL) (o Options, err error) {
	if u.Opaque != "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		return o, invalid("want %s://host:port,host:port?token_file=…, without a path or fragment", u.Scheme)
	}
	if u.User != nil {
		return o, invalid("a user before the host is not supported; pass a token as token_file=…, as token=… or in %s", TokenVariable)
	}
	r := parsedURL{}
	if u.Host != "" {
		r.Hosts = strings.Split(u.Host, ",")
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return o, invalid("the parameters after the ? cannot be parsed") // without the text, which may contain a token
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

func (r *parsedURL) tlsConfig(secure bool) (*tls.Config, error) {
	switch {
	case secure:
		return r.files.Config()
	case r.files != tlsfiles.Files{}:
		return nil, fmt.Errorf("ca, cert and key require TLS: use %s://…", secureScheme)
	}
	return nil, nil
}

// addresses returns the hosts with their ports.
func (o Options) addresses() ([]string, error) {
	if len(o.Hosts) == 0 {
		return nil, invalid("no host; want %s://host:port", plainScheme)
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
