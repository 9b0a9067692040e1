package desk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

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

// instances of desks begin like this.
const deskInstance = "desk/"

// foreigner is the program that a session belongs to, "" if it is a desk's: only
// those are anybody's who knows a lease's name. A program speaks for its sessions
// itself, and would lose all that it holds if somebody else did.
func foreigner(s protocol.Snapshot, session protocol.Session) string {
	for _, one := range s.Sessions {
		if one.Session == session && !strings.HasPrefix(one.Instance, deskInstance) {
			return one.Instance
		}
	}
	return ""
}

// notYours is when somebody names a lease of a program's.
func notYours(h handle, program string) error {
	return foreignLease{h, program}
}

// A foreignLease is the error about a lease of a program. It is [fs.ErrPermission].
type foreignLease struct {
	handle
	program string
}

func (e foreignLease) Unwrap() error { return fs.ErrPermission }
func (e foreignLease) Error() string {
	return fmt.Sprintf("lease %s of %q: program %s holds it, and renews and releases it itself; an administrator can revoke it", e.id(), e.semaphore, e.program)
}
