package dashboard

import (
	"bytes"
	"html/template"
	"sync"
)

// parts caches what was rendered, so that nothing is rendered again that looks the same.
type parts struct {
	mu    sync.Mutex
	all   map[string]part
	round int
}

// A part is HTML, and what it was rendered from, which can be compared.
type part struct {
	of    any
	html  template.HTML
	round int // in which it was last used
}

func newParts() *parts { return &parts{all: map[string]part{}} }

// render returns a template of data, rendered anew only if of has changed.
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

// next begins a round, of which there is one for each read, and forgets what was not used
// in the last one.
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

// render returns a template of data. What cannot be rendered is left out.
func render(name string, data any) template.HTML {
	var html bytes.Buffer
	if err := templates().ExecuteTemplate(&html, name, data); err != nil {
		return ""
	}
	return template.HTML(bytes.TrimSpace(html.Bytes()))
}
