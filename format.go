package sema

import (
	"fmt"
	"log/slog"

	"github.com/sema-go/sema/internal/describe"
)

// The methods of this file define what %v, %+v, %#v and log/slog print. Printing by
// reflection would show pointers and read memory that other goroutines change. These
// methods take a snapshot first and hold no lock while they print.

// String returns the name, the permits in use, the capacity and the number of
// waiters, as in
//
//	semaphore "db": 3 of 40 in use, 2 waiting
func (s *Semaphore) String() string {
	switch {
	case s == nil:
		return nilText
	case s.core.id == 0:
		return "semaphore: zero value, create it with sema.New"
	}
	return usage("semaphore", s.name, s.Stats())
}

// GoString implements [fmt.GoStringer]: it returns String.
func (s *Semaphore) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (s *Semaphore) LogValue() slog.Value { return slog.StringValue(s.String()) }

// usage returns one line that describes a semaphore with these figures.
func usage(kind, name string, st Stats) string {
	capacity := st.Capacity
	if capacity == MaxCapacity {
		capacity = -1
	}
	return describe.Usage(kind, name, st.InUse, capacity, st.Waiters, describe.State(st.Closed, st.Draining))
}

const nilText = "<nil>"

// String returns the semaphore's name, the weight and whether the permit is
// held, as in
//
//	permit of "db": 1, held
func (p Permit) String() string {
	if p.handle == nil {
		return "permit: inert"
	}
	state := "not held"
	if p.Held() {
		state = "held"
	}
	of := ""
	if name := p.gateName(); name != "" {
		of = fmt.Sprintf(" of %q", name)
	}
	return fmt.Sprintf("permit%s: %d, %s", of, p.weight, state)
}

// GoString implements [fmt.GoStringer]: it returns String.
func (p Permit) GoString() string { return p.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (p Permit) LogValue() slog.Value { return slog.StringValue(p.String()) }

// gateName returns the name of the permit's semaphore or lease, if it has one.
func (p Permit) gateName() string {
	if i := p.issuer(); i != nil {
		named, _ := i.owner.(interface{ Name() string })
		if named == nil {
			return ""
		}
		return named.Name()
	}
	if l, ok := p.Lease().(interface{ Name() string }); ok {
		return l.Name()
	}
	return ""
}

// String returns the name, the value, the maximum and the number of waiters, as
// in
//
//	counter "jobs": 3 of 10, 2 waiting
func (c *Counter) String() string {
	switch {
	case c == nil:
		return nilText
	case c.core.capacity == 0:
		return "counter: zero value, create it with sema.NewCounter"
	}
	c.core.mu.Lock()
	value, waiters, isClosed := c.core.free(), c.core.queue.n, c.core.phase == shut
	c.core.mu.Unlock()
	text := fmt.Sprintf("%s: %d of %d, %d waiting", describe.Title("counter", c.name), value, c.core.capacity, waiters)
	if isClosed {
		text += ", closed"
	}
	return text
}

// GoString implements [fmt.GoStringer]: it returns String.
func (c *Counter) GoString() string { return c.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (c *Counter) LogValue() slog.Value { return slog.StringValue(c.String()) }

// String returns the name, the permits in use, the capacity and the number of
// waiters. Under load the permits in use are approximate, as in Stats.
func (s *Striped) String() string {
	switch {
	case s == nil:
		return nilText
	case len(s.cells) == 0:
		return "striped semaphore: zero value, create it with sema.NewStriped"
	}
	return usage("striped semaphore", s.name, s.Stats())
}

// GoString implements [fmt.GoStringer]: it returns String.
func (s *Striped) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (s *Striped) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the weight in use, the size and the number of waiters.
func (s *Weighted) String() string {
	if s == nil {
		return nilText
	}
	return usage("weighted semaphore", "", s.Stats())
}

// GoString implements [fmt.GoStringer]: it returns String.
func (s *Weighted) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (s *Weighted) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the permits in use and the capacity. A Spin does not count its
// waiters.
func (s *Spin) String() string {
	if s == nil {
		return nilText
	}
	return fmt.Sprintf("spin semaphore: %d of %d in use", s.InUse(), int64(s.extra)+1)
}

// GoString implements [fmt.GoStringer]: it returns String.
func (s *Spin) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (s *Spin) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the semaphore's name, the weight and the state of the request,
// as in
//
//	request to "db": 2, waiting
func (t *Ticket) String() string {
	switch {
	case t == nil:
		return nilText
	case t.sem == nil:
		return "request: zero value, create it with Semaphore.Request"
	}
	t.mu.Lock()
	state, err := t.state, t.err
	t.mu.Unlock()
	text := "waiting"
	switch {
	case state == ticketGranted:
		text = "granted"
	case state == ticketTaken && err == nil:
		text = "taken"
	case state == ticketTaken:
		text = "failed: " + err.Error()
	}
	to := ""
	if t.sem.name != "" {
		to = fmt.Sprintf(" to %q", t.sem.name)
	}
	return fmt.Sprintf("request%s: %d, %s", to, t.n, text)
}

// GoString implements [fmt.GoStringer]: it returns String.
func (t *Ticket) GoString() string { return t.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (t *Ticket) LogValue() slog.Value { return slog.StringValue(t.String()) }

// GoString implements [fmt.GoStringer]: it returns Error.
func (e *Error) GoString() string { return e.Error() }

// GoString implements [fmt.GoStringer]: it returns Error.
func (e *sentinel) GoString() string { return e.Error() }
