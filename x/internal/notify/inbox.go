package notify

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// An Inbox holds the names of which one listener is still to be notified. A name that is
// added several times before it is taken is delivered once. A slow listener delays no
// other listener.
type Inbox struct {
	mu    sync.Mutex
	names map[string]bool
	ready chan struct{} // has capacity 1; see Ready
}

// NewInbox returns an empty Inbox.
func NewInbox() *Inbox { return &Inbox{names: map[string]bool{}, ready: make(chan struct{}, 1)} }

// Add adds a name. It does not wait for the listener.
func (i *Inbox) Add(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.names[name] = true
	signal(i.ready)
}

// Ready returns a channel that has a value when there may be names to take.
func (i *Inbox) Ready() <-chan struct{} { return i.ready }

// Take removes and returns all names, in no order.
func (i *Inbox) Take() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	names := slices.Collect(maps.Keys(i.names))
	clear(i.names)
	return names
}

// deliver calls notify with each name until ctx ends, and returns the cause of that.
func (i *Inbox) deliver(ctx context.Context, notify func(name string)) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-i.ready:
		}
		for _, name := range i.Take() {
			if ctx.Err() != nil {
				break
			}
			notify(name)
		}
	}
}

func signal(ready chan struct{}) {
	select {
	case ready <- struct{}{}:
	default:
	}
}
