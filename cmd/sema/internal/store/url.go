// Package store parses the URLs of stores, once for all commands. Package dial opens them.
package store

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/host"
)

// Default is the default store: this machine, this user.
const Default = "host:"

// wanted lists the forms of a URL.
const wanted = "want host:, redis://…, postgres://…, etcd://…, sema://… or sqlite:///…"

// A URL is the parsed URL of a store. [Parse] returns it.
type URL struct {
	raw    string
	parsed *url.URL
}

// Parse parses the URL of a store; an empty one is [Default]. Its errors contain no passwords.
func Parse(raw string) (URL, error) {
	if raw == "" {
		raw = Default
	}
	parsed, err := url.Parse(raw)
	if err != nil { // err contains the URL, so it is dropped
		return URL{}, exit.Misuse("the URL of the store cannot be parsed").With(wanted)
	}
	if parsed.Scheme == "" {
		return URL{}, exit.Misuse("store %q has no scheme", withoutUser(raw)).With(wanted)
	}
	return URL{raw, parsed}, nil
}

// FromFlag parses the value of the flag --store. If it is empty, the environment variable
// SEMA_STORE applies.
func FromFlag(value string) (URL, error) {
	if value == "" {
		value = os.Getenv("SEMA_STORE")
	}
	return Parse(value)
}

// ForFile returns the URL of a SQLite file.
func ForFile(path string) string {
	return (&url.URL{Scheme: "sqlite", Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/")}).String()
}

// withoutUser returns the part of an invalid URL that may be shown.
func withoutUser(raw string) string {
	if at := strings.LastIndexByte(raw, '@'); at >= 0 {
		return "…" + raw[at:]
	}
	return raw
}

// Raw returns the URL as it was written, with its secrets.
func (u URL) Raw() string { return u.raw }

// String returns the URL without user, password and parameters. The parameters of host: contain
// no secrets, and are included.
func (u URL) String() string {
	switch {
	case u.parsed == nil:
		return "the store"
	case u.IsHost():
		return strings.TrimSpace("host: " + strings.TrimPrefix(strings.TrimPrefix(u.raw, "host:"), "?"))
	case u.File() == "" && u.parsed.Opaque != "":
		return u.parsed.Scheme + ":" + withoutUser(u.parsed.Opaque)
	case u.parsed.Host == "" && u.parsed.Path == "":
		return u.parsed.Scheme + ":" + u.parsed.Opaque
	}
	return u.parsed.Scheme + "://" + u.parsed.Host + u.parsed.Path
}

// Scheme returns the scheme in lower case: "redis".
func (u URL) Scheme() string { return u.parsed.Scheme }

// IsHost reports whether the store is this machine.
func (u URL) IsHost() bool { return u.Scheme() == "host" }

// IsMemory reports whether the store is in the memory of this process.
func (u URL) IsMemory() bool { return u.Scheme() == "mem" }

// IsPostgres reports whether the store is a PostgreSQL database, which has tables.
func (u URL) IsPostgres() bool { return u.Scheme() == "postgres" || u.Scheme() == "postgresql" }

// IsEmbedded reports whether the store belongs to one process at a time.
func (u URL) IsEmbedded() bool { return u.IsMemory() || u.Scheme() == "sqlite" }

// CheckLeases rejects the URL of a store that does not lease permits, or that no package of this
// program implements.
func (u URL) CheckLeases() error {
	if u.IsHost() {
		return exit.Misuse("semaphores of this machine are held by processes, not leased by a store").With("name a store with --store or SEMA_STORE")
	}
	if _, known := ports[u.Scheme()]; !known && !u.IsEmbedded() {
		return &sema.Error{Op: "open", Err: sema.ErrInvalid, Detail: fmt.Sprintf("no store for %q URLs", u.Scheme()), Advice: wanted}
	}
	return nil
}

// File returns the path of a SQLite file; "" for other stores.
func (u URL) File() string {
	if u.Scheme() != "sqlite" {
		return ""
	}
	path := u.parsed.Path
	if u.parsed.Opaque != "" {
		path, _ = url.PathUnescape(u.parsed.Opaque) // the store rejects an invalid one
	}
	if runtime.GOOS == "windows" && len(path) > 2 && path[0] == '/' && path[2] == ':' {
		path = path[1:] // sqlite:///C:/path
	}
	return filepath.FromSlash(path)
}

// HostOptions returns the options of host:, host:/directory (also host:?dir=/directory), and
// host:?group=name.
func (u URL) HostOptions() (opts []host.Option, err error) {
	const wanted = "want host:, host:/directory or host:?group=name"
	p := u.parsed
	if p.Opaque != "" || p.Host != "" || p.User != nil || p.Fragment != "" {
		return nil, exit.Misuse("the URL of a store of this machine is invalid").With(wanted)
	}
	values, err := url.ParseQuery(p.RawQuery)
	if err != nil {
		return nil, exit.Misuse("host: the parameters after the ? cannot be parsed").With(wanted)
	}
	if p.Path != "" {
		opts = append(opts, host.Dir(p.Path))
	}
	for key, value := range values {
		switch {
		case len(value) != 1:
			return nil, exit.Misuse("host: parameter %s is given %d times", key, len(value))
		case key == "dir":
			opts = append(opts, host.Dir(value[0]))
		case key == "group":
			opts = append(opts, host.ShareWithGroup(value[0]))
		default:
			return nil, exit.Misuse("host: unknown parameter %s", key).With(wanted)
		}
	}
	return opts, nil
}

// IsOwnDirectory reports whether the store is the default directory of this user, which other
// containers do not share.
func (u URL) IsOwnDirectory() bool { return u.raw == Default }
