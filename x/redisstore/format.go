package redisstore

import (
	"fmt"
	"log/slog"
	"strings"
)

// String returns the addresses of the servers, without passwords.
func (s *Store) String() string { return "redis at " + strings.Join(s.options.Addresses, ", ") }

// GoString implements [fmt.GoStringer]. It returns String, since the fields contain
// secrets.
func (s *Store) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]. It returns String.
func (s *Store) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the options without the passwords.
func (o Options) String() string {
	return fmt.Sprintf("redis at %s, user %q, with a password: %t, by TLS: %t", strings.Join(o.Addresses, ", "), o.Username, o.Password != "" || o.SentinelPassword != "", o.TLS != nil)
}

// GoString implements [fmt.GoStringer]. It returns String, which contains no passwords.
func (o Options) GoString() string { return o.String() }

// LogValue implements [slog.LogValuer]. It returns String.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }
