package sqlitestore

import (
	"slices"
	"strings"
	"sync"
)

// listeners contains the listeners for change notifications, by instance. A
// notification is stored in the listener and delivered by the listener's own goroutine,
// so that a slow listener does not delay others.
type listeners struct {
	mu         sync.Mutex
	byInstance map[string][]*listener
}

// A listener receives the names of changed semaphores, one after the other.
type listener struct {
	prefix  string
	pending []string
	ready   chan struct{} // buffered
}

func (ls *listeners) add(instance, prefix string) *listener {
	l := &listener{prefix: prefix, ready: make(chan struct{}, 1)}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byInstance == nil {
		ls.byInstance = map[string][]*listener{}
	}
	ls.byInstance[instance] = append(ls.byInstance[instance], l)
	return l
}

func (ls *listeners) remove(instance string, l *listener) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.byInstance[instance] = slices.DeleteFunc(ls.byInstance[instance], func(other *listener) bool { return other == l })
	if len(ls.byInstance[instance]) == 0 {
		delete(ls.byInstance, instance)
	}
}

// notify stores the name of a semaphore, given with its prefix, for the listeners of an
// instance.
func (ls *listeners) notify(instance, fullName string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byInstance[instance] {
		name, own := strings.CutPrefix(fullName, l.prefix)
		if !own {
			continue
		}
		if !slices.Contains(l.pending, name) {
			l.pending = append(l.pending, name)
		}
		select {
		case l.ready <- struct{}{}:
		default:
		}
	}
}

// take removes and returns the pending names of a listener.
func (ls *listeners) take(l *listener) []string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	names := l.pending
	l.pending = nil
	return names
}
