package play

import (
	"context"
	"time"

	"github.com/sema-go/sema"
)

// A watchedGate passes calls of workers to a real gate, and emits an event for each.
type watchedGate struct {
	sema.Gate
	id    string
	reach time.Duration // before each acquire: the worker is on its way
}

// watch returns a gate whose calls the page shows at the gate id.
func watch(id string, gate sema.Gate) sema.Gate { return watchedGate{Gate: gate, id: id} }

// Acquire implements [sema.Gate]. The context is that of a worker.
func (g watchedGate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	w := ctx.Value(workerKey{}).(*Worker)
	if g.reach > 0 && !w.sleep(g.reach) {
		return sema.Permit{}, context.Cause(ctx)
	}
	ends := w.asks(g.id, n)
	p, err := g.Gate.Acquire(ctx, n)
	ends(err)
	if err != nil {
		return sema.Permit{}, err
	}
	return sema.NewPermit(n, &watchedLease{p, w, g.id, n}), nil
}

// Name implements the interface of gates that have one.
func (g watchedGate) Name() string { return g.id }

// A watchedLease emits the release of a permit.
type watchedLease struct {
	sema.Permit
	worker *Worker
	gate   string
	n      int64
}

// Release implements [sema.Lease].
func (l *watchedLease) Release() {
	l.worker.releases(l.gate, l.n, "")
	l.Permit.Release()
}
