package leasing

import (
	"context"
	"errors"
	"io/fs"

	"github.com/sema-go/sema/fleet/protocol"
)

// An inspection is a snapshot for all calls that came before it began (single-flight with
// a queue of one). When a server fails, another one may get requests for thousands of its
// leases at the same time. The cost of an inspection grows with the size of the semaphore.
type inspection struct {
	done     chan struct{}
	snapshot protocol.Snapshot
	err      error
}

// inspect returns a snapshot of a semaphore that is not older than the call. A semaphore that
// does not exist has no leases.
func (m *Manager) inspect(ctx context.Context, semaphore string) (protocol.Snapshot, error) {
	m.mu.Lock()
	next, inspecting := m.inspections[semaphore]
	if next == nil {
		next = &inspection{done: make(chan struct{})}
		m.inspections[semaphore] = next
		if !inspecting {
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

// inspectAgain inspects a semaphore until no call waits for it. Meanwhile m.inspections has an
// entry for the semaphore. It is nil if no call has come since the current inspection began.
func (m *Manager) inspectAgain(semaphore string) {
	for {
		m.mu.Lock()
		current := m.inspections[semaphore]
		if current == nil {
			delete(m.inspections, semaphore)
			m.mu.Unlock()
			return
		}
		m.inspections[semaphore] = nil
		m.mu.Unlock()
		// It belongs to no single caller. Detached releases need it after Close, too.
		current.err = m.retry(context.WithoutCancel(m.life), "inspect", semaphore, func(ctx context.Context) (err error) {
			if current.snapshot, err = m.store.Inspect(ctx, semaphore); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return err
		})
		close(current.done)
	}
}

// Service is the kind of client whose sessions any manager may use. Servers reject programs
// that claim it.
const Service = "service"

// serves reports whether a session is a manager's and belongs to a principal. A program sends
// the batches of its sessions itself, and would lose all leases if a manager sent one.
func serves(s protocol.Snapshot, session protocol.Session, principal string) bool {
	for _, info := range s.Sessions {
		if info.Session == session {
			return info.Client.Kind == Service && info.Owner.Principal == principal && info.Owner.Key != (protocol.Key{})
		}
	}
	return false
}
