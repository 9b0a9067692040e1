package dashboard

import (
	"bytes"
	"html/template"
	"sync"
)

// An album keeps what was drawn of a semaphore, so that nothing is drawn again that
// looks the same.
type album struct {
	mu       sync.Mutex
	drawings map[string]drawing
	round    int
}

// A drawing is a part as it was drawn of something that can be compared.
type drawing struct {
	of    any
	html  template.HTML
	round int
}

// draw is a template of data, drawn anew only if it is of something else than before.
func (a *album) draw(id, name string, of, data any) template.HTML {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, known := a.drawings[id]
	if !known || p.of != of {
		p = drawing{of: of, html: drawn(name, data)}
	}
	p.round = a.round
	a.drawings[id] = p
	return p.html
}

// turn forgets what was not drawn since the last turn, of which there is one for each look.
func (a *album) turn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, p := range a.drawings {
		if p.round != a.round {
			delete(a.drawings, id)
		}
	}
	a.round++
}

// drawn is a template of data. What cannot be drawn is left out.
func drawn(name string, data any) template.HTML {
	var html bytes.Buffer
	if err := templates().ExecuteTemplate(&html, name, data); err != nil {
		return ""
	}
	return template.HTML(bytes.TrimSpace(html.Bytes()))
}
