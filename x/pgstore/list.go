package pgstore

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema/fleet/protocol"
)

// List implements [fleet.Store]. It executes one statement, which reads as many rows as
// it returns, and takes no locks.
func (s *Store) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	prefix := s.options.Prefix + q.Prefix
	if !storable(prefix) {
		return nil, nil
	}
	var page []protocol.Summary
	err := s.do(ctx, true, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, s.calls.list, prefix, endOf(prefix), s.options.Prefix+lastNotAbove(q.After), q.Most())
		if err != nil {
			return err
		}
		var (
			one    protocol.Summary
			config []int64
		)
		page = nil
		_, err = pgx.ForEachRow(rows, []any{&one.Name, &config, &one.Effective, &one.InUse, &one.Leases, &one.Waiting, &one.Sessions}, func() (err error) {
			one.Name = one.Name[len(s.options.Prefix):]
			if one.Config, err = decodeConfig(config); err != nil {
				return about(one.Name, err)
			}
			page = append(page, one)
			return nil
		})
		return err
	})
	return page, err
}

// endOf returns a text that is above all names with a prefix, in the order of bytes.
// With it the statement reads an index range, and not all names that follow.
func endOf(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < utf8.RuneSelf-1 {
			return prefix[:i] + string(rune(prefix[i]+1))
		}
	}
	return string(utf8.MaxRune) // above all names, which are ASCII
}

// lastNotAbove returns the text itself or, if PostgreSQL cannot store it, one with the
// same names above it. Names are ASCII.
func lastNotAbove(text string) string {
	for i, r := range text {
		switch {
		case r == 0:
			return text[:i]
		case r == utf8.RuneError && !utf8.ValidString(text[i:]):
			return text[:i] + "\x7f"
		}
	}
	return text
}

// storable reports whether PostgreSQL can store a text.
func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
