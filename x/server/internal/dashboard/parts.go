package dashboard

import (
	"bytes"
	"html/template"
	"sync"
)

// parts caches rendered parts, so that unchanged ones are not rendered again.
type parts struct {
	mu    sync.Mutex
	all   map[string]part
	round int
}

// A part is HTML, with the comparable value that it was rendered from.
type part struct {
	of    any
	html  template.HTML
	round int // the round in which it was last used
}

func newParts() *parts { return &parts{all: map[string]part{}} }

// render renders a template with data, or returns the cached HTML if of is unchanged.
func (c *parts) render(id, name string, of, data any) template.HTML {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, known := c.all[id]
	if !known || p.of != of {
		p = part{of: of, html: render(name, data)}
	}
	p.round = c.round
	c.all[id] = p
	return p.html
}

// next starts a new round, one per read, and removes parts that were not used in the last
// round.
func (c *parts) next() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.all {
		if p.round != c.round {
			delete(c.all, id)
		}
	}
	c.round++
}

// render renders a template with data. It returns "" if that fails.
func render(name string, data any) template.HTML {
	var html bytes.Buffer
	if err := templates().ExecuteTemplate(&html, name, data); err != nil {
		return ""
	}
	return template.HTML(bytes.TrimSpace(html.Bytes()))
}
