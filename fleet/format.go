package fleet

import (
	"fmt"
	"log/slog"

	"github.com/sema-go/sema/internal/describe"
)

// What %v, %+v, %#v and log/slog print: values that are printed by reflection show
// pointers, keys of sessions and the passwords of stores.

// String returns the name, the permits in use, the capacity, the waiters of this process,
// and whether the semaphore drains or is closed.
func (s *Semaphore) String() string {
	stats := s.Stats()
	return describe.Usage("fleet semaphore", s.name, stats.InUse, stats.Capacity, stats.Waiters, describe.State(stats.Closed, stats.Draining))
}

// GoString implements [fmt.GoStringer]: it returns String.
func (s *Semaphore) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (s *Semaphore) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the client's instance and its store, if that is a [fmt.Stringer].
func (c *Client) String() string {
	if store, ok := c.store.(fmt.Stringer); ok {
		return fmt.Sprintf("fleet client %s of %s", c.self.Instance, store)
	}
	return "fleet client " + c.self.Instance
}

// GoString implements [fmt.GoStringer]: it returns String.
func (c *Client) GoString() string { return c.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (c *Client) LogValue() slog.Value { return slog.StringValue(c.String()) }

// String returns the stores of the region and of all regions, if they are
// [fmt.Stringer]s.
func (r *Region) String() string {
	text := "region"
	if local, ok := r.local.(fmt.Stringer); ok {
		text += " with " + local.String()
	}
	return fmt.Sprintf("%s, leasing by %s", text, r.global)
}

// GoString implements [fmt.GoStringer]: it returns String.
func (r *Region) GoString() string { return r.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (r *Region) LogValue() slog.Value { return slog.StringValue(r.String()) }

// String returns the lowest fence that the guard may admit.
func (g *Guard) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("guard: fences from %d on, %d ranges revoked", g.floor, len(g.revoked))
}

// GoString implements [fmt.GoStringer]: it returns String.
func (g *Guard) GoString() string { return g.String() }

// LogValue implements [slog.LogValuer]: it returns String.
func (g *Guard) LogValue() slog.Value { return slog.StringValue(g.String()) }
