package rate

import (
	"context"

	"github.com/sema-go/sema"
)

// TryTake acquires n permits without waiting, as [Gate.TryAcquire] does, and reports whether
// it did. It returns no error and allocates nothing, so that callers can be rejected
// cheaply; [Gate.Delay] returns when to ask again.
func (g *Gate) TryTake(n int64) (sema.Permit, bool) {
	if n <= 0 || g.monitor != nil {
		p, err := g.TryAcquire(context.Background(), n)
		return p, err == nil
	}
	g.mu.Lock()
	id, err := g.takeLocked(n)
	if err == sema.ErrFull {
		g.counts.Failed(err, false)
	}
	g.mu.Unlock()
	if err != nil {
		return sema.Permit{}, false
	}
	return g.spender.Permit(n, id), true
}
