package remotestore

import (
	"fmt"
	"log/slog"
	"strings"
)

// String returns the addresses of the service, without the token.
func (s *Store) String() string {
	text := "sema service at " + strings.Join(s.addresses, ", ")
	if s.tls != nil {
		text += ", by TLS"
	}
	return text
}

// GoString implements [fmt.GoStringer]. It returns String, since the fields contain
// secrets.
func (s *Store) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]. It returns String.
func (s *Store) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the options without the token.
func (o Options) String() string {
	return fmt.Sprintf("hosts %s, by TLS: %t, with a token: %t", strings.Join(o.Hosts, ", "), o.TLS != nil, o.Token != "" || o.TokenFile != "")
}

// GoString implements [fmt.GoStringer]. It returns String, which contains no token.
func (o Options) GoString() string { return o.String() }

// LogValue implements [slog.LogValuer]. It returns String.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }
