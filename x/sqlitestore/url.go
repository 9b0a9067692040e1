package sqlitestore

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
)

func init() {
	fleet.Register("sqlite", func(_ context.Context, u *url.URL) (fleet.Store, error) {
		path, options, err := parse(u)
		if err != nil {
			return nil, err
		}
		if options.ReadOnly {
			return OpenReader(path, options)
		}
		return Open(path, options)
	})
}

// parameters contains the query parameters of a URL.
var parameters = map[string]func(*Options, string) error{
	"prefix": func(o *Options, value string) error {
		o.Prefix = value
		return nil
	},
	"mode": func(o *Options, value string) error {
		switch value {
		case "rw":
		case "ro":
			o.ReadOnly = true
		default:
			return fmt.Errorf("mode=%s: want rw or ro", value)
		}
		return nil
	},
	"synchronous": func(o *Options, value string) error {
		switch value {
		case "full":
		case "normal":
			o.Normal = true
		default:
			return fmt.Errorf("synchronous=%s: want full or normal", value)
		}
		return nil
	},
}

// parse parses sqlite:///absolute/path or sqlite:relative/path.
func parse(u *url.URL) (path string, o Options, err error) {
	if u.Host != "" || u.User != nil || u.Fragment != "" {
		return "", o, invalid("want sqlite:///absolute/path or sqlite:relative/path, without a host, user or fragment")
	}
	if path = u.Path; u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return "", o, invalid("the path cannot be unescaped: %v", err)
		}
	}
	if runtime.GOOS == "windows" && len(path) > 2 && path[0] == '/' && path[2] == ':' {
		path = filepath.FromSlash(path[1:]) // sqlite:///C:/path
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", o, invalid("the query cannot be parsed: %v", err)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		set := parameters[key]
		if set == nil {
			return "", o, invalid("parameter %q is not known; there are: %s", key, strings.Join(slices.Sorted(maps.Keys(parameters)), ", "))
		}
		if len(values[key]) > 1 {
			return "", o, invalid("parameter %q is given %d times", key, len(values[key]))
		}
		if err := set(&o, values[key][0]); err != nil {
			return "", o, invalid("%v", err)
		}
	}
	return path, o, nil
}

// check rejects an invalid path or prefix.
func (o Options) check(path string) error {
	switch {
	case path == "" || strings.HasSuffix(path, "/"):
		return invalid("path %q names no file; want sqlite:///absolute/path or sqlite:relative/path", path)
	case strings.ContainsRune(path, 0):
		return invalid("path %q contains a zero byte", path)
	case strings.Contains(path, ":memory:"):
		return invalid("path %q: use the store mem: for semaphores in memory", path)
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

// maxPrefix is the maximum length of a prefix, in bytes, and equals that of names.
const maxPrefix = 200

func invalid(format string, args ...any) error {
	return &sema.Error{Op: "open", Err: sema.ErrInvalid, Detail: "sqlite: " + fmt.Sprintf(format, args...)}
}
