package sqlitestore

import (
	"slices"
	"strings"
	"sync"
)

// listeners are those who want to hear of news, by instance. A hint is noted
// for them and told by their own goroutine, so that a slow one is in nobody's
// way.
type listeners struct {
	mu         sync.Mutex
	byInstance map[string][]*listener
}

// A listener has names told to it one after the other.
type listener struct {
	prefix  string
	pending []string
	news    chan struct{} // buffered
}

func (ls *listeners) add(instance, prefix string) *listener {
	l := &listener{prefix: prefix, news: make(chan struct{}, 1)}
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

// hint notes a semaphore, by its whole name, for those who listen as an
// instance.
func (ls *listeners) hint(instance, whole string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byInstance[instance] {
		name, own := strings.CutPrefix(whole, l.prefix)
		if !own {
			continue
		}
		if !slices.Contains(l.pending, name) {
			l.pending = append(l.pending, name)
		}
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
}

// take is what a listener is to be told now.
func (ls *listeners) take(l *listener) []string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	names := l.pending
	l.pending = nil
	return names
}
