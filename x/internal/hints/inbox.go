package hints

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// An Inbox is what one listener is still to be told. Who is slow to listen is told
// of each name once, and is in nobody's way.
type Inbox struct {
	mu    sync.Mutex
	names map[string]bool
	some  chan struct{} // buffered
}

// NewInbox is an empty one.
func NewInbox() *Inbox { return &Inbox{names: map[string]bool{}, some: make(chan struct{}, 1)} }

// Add has a name be told. It does not wait.
func (i *Inbox) Add(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.names[name] = true
	signal(i.some)
}

// Some has something when there may be names to take.
func (i *Inbox) Some() <-chan struct{} { return i.some }

// Take is the names that are to be told now.
func (i *Inbox) Take() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	names := slices.Collect(maps.Keys(i.names))
	clear(i.names)
	return names
}

// deliver tells until ctx ends, and returns why it did.
func (i *Inbox) deliver(ctx context.Context, hint func(name string)) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-i.some:
		}
		for _, name := range i.Take() {
			if ctx.Err() != nil {
				break
			}
			hint(name)
		}
	}
}

func signal(some chan struct{}) {
	select {
	case some <- struct{}{}:
	default:
	}
}
