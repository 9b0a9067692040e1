// Package hints has one connection hear for all who listen. An engine whose server
// tells on a connection who has news gives a [Hub] a function that hears on one;
// any number of listeners come and go meanwhile. An engine that knows the listeners
// of its own process, and one whose client shares a connection by itself, need none.
package hints

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// A Hub is those who listen, by instance, and who hears for them.
type Hub struct {
	hear    func(ctx context.Context)
	changed chan struct{} // buffered

	mu      sync.Mutex
	inboxes map[string][]*Inbox
	moved   map[string]bool    // as which somebody came or went, see Changes
	end     context.CancelFunc // of hear, if it is to run
	ended   chan struct{}      // closed when hear, which is run by one at a time, has returned
	closed  bool
}

// NewHub is for nobody yet. The function hear runs from when somebody listens until
// nobody does, which ends its context; it goes on through failures. It says by
// [Hub.Tell] what it hears.
func NewHub(hear func(ctx context.Context)) *Hub {
	h := &Hub{hear: hear, changed: make(chan struct{}, 1), inboxes: map[string][]*Inbox{}, moved: map[string]bool{}, ended: make(chan struct{})}
	close(h.ended)
	return h
}

// Listen is for [fleet.Store]. It returns the cause of the end of ctx.
func (h *Hub) Listen(ctx context.Context, instance string, hint func(name string)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	own := NewInbox()
	h.join(instance, own)
	defer h.leave(instance, own)
	return own.deliver(ctx, hint)
}

func (h *Hub) join(instance string, own *Inbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inboxes[instance] = append(h.inboxes[instance], own)
	h.move(instance)
	if h.end == nil && !h.closed {
		h.start()
	}
}

func (h *Hub) leave(instance string, own *Inbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inboxes[instance] = slices.DeleteFunc(h.inboxes[instance], func(other *Inbox) bool { return other == own })
	if len(h.inboxes[instance]) == 0 {
		delete(h.inboxes, instance)
		h.move(instance)
	}
	if len(h.inboxes) == 0 {
		h.stop()
	}
}

func (h *Hub) move(instance string) {
	h.moved[instance] = true
	signal(h.changed)
}

// start has somebody hear, once the one before has ended: there is never a second
// connection.
func (h *Hub) start() {
	before, ended := h.ended, make(chan struct{})
	var ctx context.Context
	ctx, h.end = context.WithCancel(context.Background())
	h.ended = ended
	go func() {
		defer close(ended)
		<-before
		if ctx.Err() == nil {
			h.hear(ctx)
		}
	}()
}

func (h *Hub) stop() {
	if h.end != nil {
		h.end()
		h.end = nil
	}
}

// Tell notes a name for those who listen as an instance.
func (h *Hub) Tell(instance, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, inbox := range h.inboxes[instance] {
		inbox.Add(name)
	}
}

// All are the instances that somebody listens as.
func (h *Hub) All() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.inboxes))
}

// Changed has something when there may be changes.
func (h *Hub) Changed() <-chan struct{} { return h.changed }

// Changes are the instances that somebody has begun to listen as since it was last
// called, others may have before, and those that nobody listens as any more.
func (h *Hub) Changes() (joined, left []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for instance := range h.moved {
		if len(h.inboxes[instance]) > 0 {
			joined = append(joined, instance)
		} else {
			left = append(left, instance)
		}
	}
	clear(h.moved)
	return joined, left
}

// Close has nobody hear any more, and waits for the end of that. Those who listen
// still do, in vain.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.stop()
	ended := h.ended
	h.mu.Unlock()
	<-ended
}
