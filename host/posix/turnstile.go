package posix

import (
	"container/list"
	"sync"
)

// A turnstile lets one goroutine through at a time, in order of arrival.
type turnstile struct {
	mu    sync.Mutex
	taken bool
	queue list.List // of chan struct{}, closed when it is the waiter's turn; empty unless taken
}

// enter waits for the caller's turn and reports whether it got it. If so, the caller
// must call leave. It returns false if one of the channels is closed first.
func (t *turnstile) enter(done, closing <-chan struct{}) bool {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	element := t.queue.PushBack(turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-done:
	case <-closing:
	}
	t.cancel(turn, element)
	return false
}

func (t *turnstile) cancel(turn chan struct{}, element *list.Element) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-turn: // the turn came meanwhile: pass it on
		t.passOnLocked()
	default:
		t.queue.Remove(element)
	}
}

func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passOnLocked()
}

func (t *turnstile) passOnLocked() {
	next := t.queue.Front()
	if next == nil {
		t.taken = false
		return
	}
	close(t.queue.Remove(next).(chan struct{}))
}
