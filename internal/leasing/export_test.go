package leasing

import (
	"context"

	"github.com/sema-go/sema/fleet/protocol"
)

// Remembered returns how much the manager keeps.
func (m *Manager) Remembered() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.leased) + len(m.idle) + len(m.queues) + len(m.released) + len(m.attempts) + len(m.inspections)
}

// Standing returns in how many queues sessions wait.
func (m *Manager) Standing() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.queues)
}

// Look returns a semaphore as it is.
func (m *Manager) Look(ctx context.Context, semaphore string) (protocol.Snapshot, error) {
	return m.inspect(ctx, semaphore)
}
