package fleet

import (
	"fmt"
	"log/slog"

	"github.com/sema-go/sema/internal/describe"
)

// These methods define what %v, %+v, %#v and log/slog print. Reflection would print
// pointers, session keys and the passwords of stores.

// String returns the name, the permits in use, the capacity, the waiters of this process,
// and whether the semaphore is draining or closed.
func (s *Semaphore) String() string {
	stats := s.Stats()
	return describe.Usage("fleet semaphore", s.name, stats.InUse, stats.Capacity, stats.Waiters, describe.State(stats.Closed, stats.Draining))
}

// GoString implements [fmt.GoStringer].
func (s *Semaphore) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer].
func (s *Semaphore) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the client's instance and, if the store is a [fmt.Stringer], its store.
func (c *Client) String() string {
	if store, ok := c.store.(fmt.Stringer); ok {
		return fmt.Sprintf("fleet client %s of %s", c.self.Instance, store)
	}
	return "fleet client " + c.self.Instance
}

// GoString implements [fmt.GoStringer].
func (c *Client) GoString() string { return c.String() }

// LogValue implements [slog.LogValuer].
func (c *Client) LogValue() slog.Value { return slog.StringValue(c.String()) }

// String returns the local store, if it is a [fmt.Stringer], and the global client.
func (r *Region) String() string {
	text := "region"
	if local, ok := r.local.(fmt.Stringer); ok {
		text += " with " + local.String()
	}
	return fmt.Sprintf("%s, leasing by %s", text, r.global)
}

// GoString implements [fmt.GoStringer].
func (r *Region) GoString() string { return r.String() }

// LogValue implements [slog.LogValuer].
func (r *Region) LogValue() slog.Value { return slog.StringValue(r.String()) }

// String returns the lowest fence that the guard may admit, and the number of revoked
// ranges.
func (g *Guard) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("guard: fences from %d on, %d ranges revoked", g.floor, len(g.revoked))
}

// GoString implements [fmt.GoStringer].
func (g *Guard) GoString() string { return g.String() }

// LogValue implements [slog.LogValuer].
func (g *Guard) LogValue() slog.Value { return slog.StringValue(g.String()) }
