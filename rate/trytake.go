package rate

import (
	"context"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/seal"
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

// TakeAt acquires n permits as TryTake does, given a reading of [monotonic.Since] of just
// now. It fails, and counts nothing, if it cannot decide quickly: TryTake must follow. It is
// for package admit, which reads the clock once for all that it does.
func (g *Gate) TakeAt(_ seal.Key, n int64, now time.Duration) (sema.Permit, bool) {
	if n <= 0 || g.monitor != nil {
		return sema.Permit{}, false
	}
	g.mu.Lock()
	at := g.clock.at(int64(now))
	if g.queue.Len() > 0 || g.phase != open || at < g.paused {
		g.mu.Unlock()
		return sema.Permit{}, false
	}
	g.bucket.advance(at)
	g.bucket.spill()
	if n > g.bucket.free {
		g.mu.Unlock()
		return sema.Permit{}, false
	}
	g.counts.Acquired++
	id := g.bucket.take(n)
	g.mu.Unlock()
	return g.spender.Permit(n, id), true
}
