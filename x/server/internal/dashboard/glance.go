package dashboard

import (
	"html/template"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A glance is a semaphore as it was seen once, for all who look. Each part of a page
// about it is drawn when the first of them wants it.
type glance struct {
	semaphore
	at    time.Time // here
	gone  bool      // there is no such semaphore
	err   error     // it could not be looked at
	album *album
	row   func() template.HTML

	mu     sync.Mutex
	scenes map[bool]scene // by whether one may change it
}

func newGlance(s semaphore, a *album) *glance {
	g := &glance{semaphore: s, album: a, scenes: map[bool]scene{}}
	g.row = sync.OnceValue(func() template.HTML { return a.draw("row", "row", s.figures(), s) })
	return g
}

// figures are what most parts are about: while they are the same, so is each.
type figures struct {
	config                   protocol.Config
	effective, inUse         int64
	holding, waiting, listed int
	failure                  string
}

func (s semaphore) figures() figures {
	return figures{s.Config, s.Effective, s.InUse, s.holding, s.waiting, len(s.Leases), s.Failure}
}

// scene is its page in parts that change on their own.
func (g *glance) scene(a *asker, mayChange bool) scene {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, known := g.scenes[mayChange]
	if !known {
		s = g.draw(a, mayChange)
		g.scenes[mayChange] = s
	}
	return s
}

func (g *glance) draw(a *asker, mayChange bool) scene {
	s := scene{map[string]template.HTML{}, map[string][]string{"holders": {}, "line": {}}}
	s.parts["trouble"] = drawn("trouble", (*trouble)(nil))
	if g.gone {
		s.parts["state"] = drawn("gone", nil)
		return s
	}
	plain := []string{"state", "settings", "holders-note", "line-note"}
	if mayChange {
		plain = append(plain, "verbs")
	}
	for _, id := range plain {
		s.parts[id] = g.album.draw(id, id, g.figures(), g.semaphore)
	}
	s.parts["charts"] = drawn("charts", chartsOf(a.trailOf(g.Name), g.at))
	for _, h := range g.holders(mayChange) {
		id := h.ID()
		key := id
		if mayChange {
			key += " with a button"
		}
		s.parts[id] = g.album.draw(key, "holder", h, h)
		s.lists["holders"] = append(s.lists["holders"], id)
	}
	for _, one := range g.waiters() {
		s.parts[one.ID()] = g.album.draw(one.ID(), "waiter", one, one)
		s.lists["line"] = append(s.lists["line"], one.ID())
	}
	return s
}
