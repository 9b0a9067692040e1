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
		return "set: zero value, make it with sysv.Create or sysv.Open"
	}
	return fmt.Sprintf("%s: id %d, %d semaphores", describe.Title("set", s.Name()), s.id, s.n)
}

// GoString implements [fmt.GoStringer]: it returns String.
func (s *Set) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (s *Set) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the name, the permits in use, the capacity and the number of
// waiters, by asking the kernel, as in
//
//	gate "sysv 0x0000002a/0": 3 of 40 in use, 2 waiting
func (g *Gate) String() string {
	switch {
	case g == nil:
		return "<nil>"
	case g.set == nil:
		return "gate: zero value, make it with sysv.AsGate"
	}
	value, err := g.set.Value(g.num)
	if err != nil {
		return describe.Title("gate", g.Name()) + ": " + err.Error()
	}
	waiters := g.turnstile.Stats().Waiters
	if inKernel, _, err := g.set.Waiting(g.num); err == nil {
		waiters += inKernel
	}
	return describe.Usage("gate", g.Name(), max(0, g.capacity-int64(value)), g.capacity, waiters)
}

// GoString implements [fmt.GoStringer]: it returns String.
func (g *Gate) GoString() string { return g.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (g *Gate) LogValue() slog.Value { return slog.StringValue(g.String()) }

// GoString implements [fmt.GoStringer]: it returns Error.
func (r *refusal) GoString() string { return r.Error() }

// GoString implements [fmt.GoStringer]: it returns Error.
func (r *reason) GoString() string { return r.Error() }
