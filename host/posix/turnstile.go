package posix

import (
	"container/list"
	"sync"
)

// A turnstile lets one goroutine through at a time, in order of arrival.
type turnstile struct {
	mu    sync.Mutex
	taken bool
	line  list.List // of chan struct{}, closed when its turn has come; empty unless taken
}

// enter waits for its turn and says whether it has come; if so, leave must be
// called. It gives up when one of the channels is closed.
func (t *turnstile) enter(done, closing <-chan struct{}) bool {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	place := t.line.PushBack(turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-done:
	case <-closing:
	}
	t.giveUp(turn, place)
	return false
}

func (t *turnstile) giveUp(turn chan struct{}, place *list.Element) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-turn: // it came after all, and is the next one's
		t.passOn()
	default:
		t.line.Remove(place)
	}
}

func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passOn()
}

func (t *turnstile) passOn() {
	next := t.line.Front()
	if next == nil {
		t.taken = false
		return
	}
	close(t.line.Remove(next).(chan struct{}))
}
