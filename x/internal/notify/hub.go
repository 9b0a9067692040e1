// Package notify multiplexes change notifications: one connection serves any number of
// listeners. A store whose server sends notifications on a connection passes a [Hub]
// the function that receives them. Listeners join and leave while it runs. A store that
// knows the listeners of its own process does not need a Hub, nor does a store whose
// client library multiplexes one connection by itself.
package notify

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// A Hub passes the notifications that one receive loop gets to all listeners, by
// instance. At most one receive loop runs at a time.
type Hub struct {
	receive func(ctx context.Context)
	changed chan struct{} // has capacity 1; see Changed

	mu      sync.Mutex
	inboxes map[string][]*Inbox
	moved   map[string]bool    // instances that a listener joined, or the last one left, since the last Changes
	end     context.CancelFunc // ends the receive loop; nil if none is meant to run
	ended   chan struct{}      // closed when the newest receive loop has returned
	closed  bool
}

// NewHub returns a Hub without listeners. The function receive runs while there are
// listeners. Its context ends when no listener is left. It calls [Hub.Notify] for each
// notification and retries after failures until its context ends.
func NewHub(receive func(ctx context.Context)) *Hub {
	h := &Hub{receive: receive, changed: make(chan struct{}, 1), inboxes: map[string][]*Inbox{}, moved: map[string]bool{}, ended: make(chan struct{})}
	close(h.ended)
	return h
}

// Listen implements [fleet.Store]. It returns the cause of the end of ctx.
func (h *Hub) Listen(ctx context.Context, instance string, notify func(name string)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	own := NewInbox()
	h.join(instance, own)
	defer h.leave(instance, own)
	return own.deliver(ctx, notify)
}

func (h *Hub) join(instance string, own *Inbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inboxes[instance] = append(h.inboxes[instance], own)
	h.noteChangeLocked(instance)
	if h.end == nil && !h.closed {
		h.startLocked()
	}
}

func (h *Hub) leave(instance string, own *Inbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inboxes[instance] = slices.DeleteFunc(h.inboxes[instance], func(other *Inbox) bool { return other == own })
	if len(h.inboxes[instance]) == 0 {
		delete(h.inboxes, instance)
		h.noteChangeLocked(instance)
	}
	if len(h.inboxes) == 0 {
		h.stopLocked()
	}
}

func (h *Hub) noteChangeLocked(instance string) {
	h.moved[instance] = true
	signal(h.changed)
}

// startLocked starts the receive loop. The loop begins only after the previous one has
// returned, so there is never a second connection.
func (h *Hub) startLocked() {
	before, ended := h.ended, make(chan struct{})
	var ctx context.Context
	ctx, h.end = context.WithCancel(context.Background())
	h.ended = ended
	go func() {
		defer close(ended)
		<-before
		if ctx.Err() == nil {
			h.receive(ctx)
		}
	}()
}

func (h *Hub) stopLocked() {
	if h.end != nil {
		h.end()
		h.end = nil
	}
}

// Notify adds a name to the inboxes of all listeners of an instance.
func (h *Hub) Notify(instance, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, inbox := range h.inboxes[instance] {
		inbox.Add(name)
	}
}

// All returns the instances that have a listener.
func (h *Hub) All() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.inboxes))
}

// Changed returns a channel that has a value when [Hub.Changes] may have a result.
func (h *Hub) Changed() <-chan struct{} { return h.changed }

// Changes returns what changed since its last call: joined are the instances that a
// listener joined, even if they had one before; left are those without any listener now.
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

// Close stops the receive loop and waits until it has returned. Listen calls go on until
// their contexts end, but receive nothing more.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.stopLocked()
	ended := h.ended
	h.mu.Unlock()
	<-ended
}
