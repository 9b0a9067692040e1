package leasing

import (
	"context"
	"errors"
	"io/fs"

	"github.com/sema-go/sema/fleet/protocol"
)

// An inspection is a snapshot of a semaphore for all that asked before it began. When a
// server is gone, another one is asked for thousands of its leases at the same time, and an
// inspection takes as long as a semaphore is large.
type inspection struct {
	done     chan struct{}
	snapshot protocol.Snapshot
	err      error
}

// inspect returns a semaphore as it is, and not as it was before the call. One that does not
// exist has no leases.
func (m *Manager) inspect(ctx context.Context, semaphore string) (protocol.Snapshot, error) {
	m.mu.Lock()
	next, looking := m.inspections[semaphore]
	if next == nil {
		next = &inspection{done: make(chan struct{})}
		m.inspections[semaphore] = next
		if !looking {
			m.callers.Go(func() { m.inspectAgain(semaphore) })
		}
	}
	m.mu.Unlock()
	select {
	case <-next.done:
		return next.snapshot, next.err
	case <-ctx.Done():
		return protocol.Snapshot{}, context.Cause(ctx)
	}
}

// inspectAgain inspects a semaphore for as long as it is asked for. Meanwhile m.inspections
// has the semaphore; with nil, if nothing has asked since the present inspection began.
func (m *Manager) inspectAgain(semaphore string) {
	for {
		m.mu.Lock()
		now := m.inspections[semaphore]
		if now == nil {
			delete(m.inspections, semaphore)
			m.mu.Unlock()
			return
		}
		m.inspections[semaphore] = nil
		m.mu.Unlock()
		// It belongs to no caller, and is needed for detached releases, too.
		now.err = m.retry(context.WithoutCancel(m.life), "inspect", semaphore, func(ctx context.Context) (err error) {
			if now.snapshot, err = m.store.Inspect(ctx, semaphore); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return err
		})
		close(now.done)
	}
}

// Service is the kind of client whose sessions any manager may use. Servers reject programs
// that claim it.
const Service = "service"

// serves reports whether a session is a manager's and serves that principal. A program sends
// the batches of its sessions itself, and would lose all that it holds if a manager did.
func serves(s protocol.Snapshot, session protocol.Session, principal string) bool {
	for _, one := range s.Sessions {
		if one.Session == session {
			return one.Client.Kind == Service && one.Owner.Principal == principal && one.Owner.Key != (protocol.Key{})
		}
	}
	return false
}
