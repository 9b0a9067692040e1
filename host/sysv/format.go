package sysv

import (
	"fmt"
	"log/slog"

	"github.com/sema-go/sema/internal/describe"
)

// String returns the name, the id and the number of semaphores, as in
//
//	set "sysv 0x0000002a": id 7, 3 semaphores
func (s *Set) String() string {
	switch {
	case s == nil:
		return "<nil>"
	case s.n == 0:
		return "set: zero value, create it with sysv.Create or sysv.Open"
	}
	return fmt.Sprintf("%s: id %d, %d semaphores", describe.Title("set", s.Name()), s.id, s.n)
}

// GoString implements [fmt.GoStringer]. It returns the same text as String.
func (s *Set) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]. It returns the same text as String.
func (s *Set) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the name, the permits in use, the capacity and the number of waiters,
// for which it queries the kernel:
//
//	gate "sysv 0x0000002a/0": 3 of 40 in use, 2 waiting
func (g *Gate) String() string {
	switch {
	case g == nil:
		return "<nil>"
	case g.set == nil:
		return "gate: zero value, create it with sysv.AsGate"
	}
	if _, err := g.set.Value(g.num); err != nil {
		return describe.Title("gate", g.name) + ": " + err.Error()
	}
	st := g.Stats()
	return describe.Usage("gate", g.name, st.InUse, st.Capacity, st.Waiters, describe.State(st.Closed, false))
}

// GoString implements [fmt.GoStringer]. It returns the same text as String.
func (g *Gate) GoString() string { return g.String() }

// LogValue implements [slog.LogValuer]. It returns the same text as String.
func (g *Gate) LogValue() slog.Value { return slog.StringValue(g.String()) }

// GoString implements [fmt.GoStringer]. It returns the same text as Error.
func (r *reason) GoString() string { return r.Error() }
