package admit

import (
	"context"
	"sync"
)

// A drain ends the waits for rates when the controller is shut down. Waits in the queue are
// ended by the queue.
type drain struct {
	mu  sync.Mutex // guards what follows
	ctx context.Context
	end context.CancelFunc
}

// open lets requests wait, also again.
func (d *drain) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == nil || d.ctx.Err() != nil {
		d.ctx, d.end = context.WithCancel(context.Background())
	}
}

// close ends the waits.
func (d *drain) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
}

// onClose calls fn in a goroutine when the drain is closed, or at once if it is, unless stop is
// called before.
func (d *drain) onClose(fn func()) (stop func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return context.AfterFunc(d.ctx, fn)
}
