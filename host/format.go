package host

import (
	"log/slog"

	"github.com/sema-go/sema/internal/describe"
)

// String returns the name, the permits in use on the whole machine, the capacity and
// the number of waiters, as [Semaphore.Stats] returns them:
//
//	host semaphore "db": 3 of 40 in use, 2 waiting
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
	st := s.Stats()
	if s.file.damaged.Load() {
		return describe.Title(kind, s.name) + ": its file is damaged"
	}
	return describe.Usage(kind, s.name, st.InUse, st.Capacity, st.Waiters, describe.State(st.Closed, st.Draining))
}

// GoString implements [fmt.GoStringer]. It returns the same text as String.
func (s *Semaphore) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]. It returns the same text as String.
func (s *Semaphore) LogValue() slog.Value { return slog.StringValue(s.String()) }
