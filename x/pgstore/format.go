package pgstore

import (
	"fmt"
	"log/slog"
)

// String returns where the store is, without the password.
func (s *Store) String() string {
	return fmt.Sprintf("postgres %s, schema %s", s.address, s.options.Schema)
}

// GoString implements [fmt.GoStringer]: it returns String, as the fields have secrets.
func (s *Store) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (s *Store) LogValue() slog.Value { return slog.StringValue(s.String()) }
