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

// GoString implements [fmt.GoStringer]. It returns the same text as String.
func (s *Semaphore) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]. It returns the same text as String.
func (s *Semaphore) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the name, the permits in use, the capacity and the number of
// waiters, as in
//
//	POSIX gate "/db": 3 of 40 in use, 2 waiting
func (g *Gate) String() string {
	const kind = "POSIX gate"
	switch {
	case g == nil:
		return "<nil>"
	case g.s == nil:
		return kind + ": zero value, create it with posix.AsGate"
	}
	st := g.Stats()
	if st.Closed {
		return describe.Title(kind, g.name) + ": closed"
	}
	return describe.Usage(kind, g.name, st.InUse, st.Capacity, st.Waiters)
}

// GoString implements [fmt.GoStringer]. It returns the same text as String.
func (g *Gate) GoString() string { return g.String() }

// LogValue implements [slog.LogValuer]. It returns the same text as String.
func (g *Gate) LogValue() slog.Value { return slog.StringValue(g.String()) }
