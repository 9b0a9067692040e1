package host

import (
	"errors"
	"log/slog"

	"github.com/sema-go/sema/internal/describe"
)

// String returns the name, the permits in use on the whole machine, the
// capacity and the number of waiters, as in
//
//	host semaphore "db": 3 of 40 in use, 2 waiting
//
// Like Stats it asks the kernel for the locks.
func (s *Semaphore) String() string {
	const kind = "host semaphore"
	switch {
	case s == nil:
		return "<nil>"
	case s.file == nil:
		return kind + ": zero value, open it with host.Open"
	case s.closed.Load():
		return describe.Title(kind, s.name) + ": closed"
	}
	stats, err := s.Stats()
	switch {
	case errors.Is(err, ErrDamaged):
		return describe.Title(kind, s.name) + ": its file is damaged"
	case err != nil:
		return describe.Title(kind, s.name) + ": " + err.Error()
	}
	return describe.Usage(kind, s.name, stats.InUse, stats.Capacity, stats.Waiters)
}

// GoString implements [fmt.GoStringer]: it returns String.
func (s *Semaphore) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (s *Semaphore) LogValue() slog.Value { return slog.StringValue(s.String()) }
