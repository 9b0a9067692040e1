package desk

import (
	"context"
	"errors"
	"io/fs"

	"github.com/sema-go/sema/fleet/protocol"
)

// A sight is a look at a semaphore, for all who asked before it began. When a server
// is gone, another one is asked for thousands of its leases at the same time, and to
// look takes as long as a semaphore is large.
type sight struct {
	done     chan struct{}
	snapshot protocol.Snapshot
	err      error
}

// look is a semaphore as it is, not as it was before it was asked for. One that is
// not there has no leases.
func (d *Desk) look(ctx context.Context, semaphore string) (protocol.Snapshot, error) {
	d.mu.Lock()
	next, looking := d.sights[semaphore]
	if next == nil {
		next = &sight{done: make(chan struct{})}
		d.sights[semaphore] = next
		if !looking {
			d.callers.Go(func() { d.lookAgain(semaphore) })
		}
	}
	d.mu.Unlock()
	select {
	case <-next.done:
		return next.snapshot, next.err
	case <-ctx.Done():
		return protocol.Snapshot{}, context.Cause(ctx)
	}
}

// lookAgain looks for as long as somebody asks. While it does, d.sights has the
// semaphore; with nil, if nobody has asked since the present look began.
func (d *Desk) lookAgain(semaphore string) {
	for {
		d.mu.Lock()
		now := d.sights[semaphore]
		if now == nil {
			delete(d.sights, semaphore)
			d.mu.Unlock()
			return
		}
		d.sights[semaphore] = nil
		d.mu.Unlock()
		// It is nobody's own, and is needed for last words, too.
		now.err = d.insist(context.WithoutCancel(d.life), "inspect", semaphore, func(ctx context.Context) (err error) {
			if now.snapshot, err = d.store.Inspect(ctx, semaphore); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return err
		})
		close(now.done)
	}
}

// Service is the kind of client whose sessions any desk may continue. Servers reject
// programs that claim it.
const Service = "service"

// serves reports whether a session is a desk's and serves that principal. A program
// sends the batches of its sessions itself, and would lose all that it holds if a desk
// did.
func serves(s protocol.Snapshot, session protocol.Session, principal string) bool {
	for _, one := range s.Sessions {
		if one.Session == session {
			return one.Client.Kind == Service && one.Owner.Principal == principal && one.Owner.Key != (protocol.Key{})
		}
	}
	return false
}
