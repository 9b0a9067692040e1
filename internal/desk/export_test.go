package desk

import (
	"context"

	"github.com/sema-go/sema/fleet/protocol"
)

// Remembered is how much the desk knows.
func (d *Desk) Remembered() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.visits) + len(d.idle) + len(d.lines) + len(d.released) + len(d.asking) + len(d.sights)
}

// Standing is in how many lines somebody waits.
func (d *Desk) Standing() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.lines)
}

// Look is a semaphore as it is.
func (d *Desk) Look(ctx context.Context, semaphore string) (protocol.Snapshot, error) {
	return d.look(ctx, semaphore)
}
