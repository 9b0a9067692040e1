package posix

import (
	"fmt"
	"log/slog"

	"github.com/sema-go/sema/internal/describe"
)

// String returns the name, the value and the number of waiters, as in
//
//	POSIX semaphore "/db": value 3, 2 waiting
func (s *Semaphore) String() string {
	if s == nil {
		return "<nil>"
	}
	title := describe.Title("POSIX semaphore", s.name)
	if !s.open.Load() {
		return title + ": closed"
	}
	return fmt.Sprintf("%s: value %d, %d waiting", title, s.Value(), s.Waiters())
}

// GoString implements [fmt.GoStringer]: it returns String.
func (s *Semaphore) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (s *Semaphore) LogValue() slog.Value { return slog.StringValue(s.String()) }

func (g gate) String() string { return g.s.String() }

func (g gate) GoString() string { return g.s.String() }

func (g gate) LogValue() slog.Value { return g.s.LogValue() }
