package etcdstore

import (
	"fmt"
	"log/slog"
	"strings"
)

// String returns where the store is, without the password.
func (s *Store) String() string {
	return "etcd at " + strings.Join(s.connection.config.Endpoints, ", ")
}

// GoString implements [fmt.GoStringer]: it returns String, as the fields have secrets.
func (s *Store) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (s *Store) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the options without the passwords.
func (o Options) String() string {
	return fmt.Sprintf("etcd at %s, user %q, with a password: %t, by TLS: %t", strings.Join(o.Endpoints, ", "), o.User, o.Password != "", o.TLS != nil)
}

// GoString implements [fmt.GoStringer]: it returns String, which has no passwords.
func (o Options) GoString() string { return o.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }
