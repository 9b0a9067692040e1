package sqlitestore

import (
	"log/slog"
)

// String returns the path of the file.
func (s *Store) String() string { return "sqlite " + s.shared.path }

// GoString implements [fmt.GoStringer]. It returns the same text as String.
func (s *Store) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]. It returns the same text as String.
func (s *Store) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the path of the file.
func (r *Reader) String() string { return "sqlite " + r.path + ", for reading" }

// GoString implements [fmt.GoStringer]. It returns the same text as String.
func (r *Reader) GoString() string { return r.String() }

// LogValue implements [slog.LogValuer]. It returns the same text as String.
func (r *Reader) LogValue() slog.Value { return slog.StringValue(r.String()) }
