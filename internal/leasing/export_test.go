package leasing

import (
	"context"

	"github.com/sema-go/sema/fleet/protocol"
)

// Entries returns the number of entries that the manager keeps.
func (m *Manager) Entries() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.leased) + len(m.idle) + len(m.queues) + len(m.released) + len(m.attempts) + len(m.inspections)
}

// Queues returns the number of queues with waiting sessions.
func (m *Manager) Queues() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.queues)
}

// Inspect returns a snapshot of a semaphore.
func (m *Manager) Inspect(ctx context.Context, semaphore string) (protocol.Snapshot, error) {
	return m.inspect(ctx, semaphore)
}
