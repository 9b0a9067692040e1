package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A scene is a page in parts, each an element with an id. Lists are elements whose
// children come, go and change places.
type scene struct {
	parts []part
	lists map[string][]string // ids of the children, by that of the list
}

type part struct{ id, html string }

func (s *scene) add(id, template string, data any) {
	var html bytes.Buffer
	if err := templates().ExecuteTemplate(&html, template, data); err != nil {
		return // the page has said so when it was opened; this part stays as it is
	}
	s.parts = append(s.parts, part{id, strings.TrimSpace(html.String())})
}

// A change is what of a scene is not as it was. A page gets one at every look, also
// if there is nothing in it: so it knows that it is live.
type change struct {
	Live  bool                `json:"live"`  // the engine answers
	Parts map[string]string   `json:"parts"` // by id
	Lists map[string][]string `json:"lists,omitempty"`
}

// A screen is what a page shows by now.
type screen struct {
	parts map[string]string
	lists map[string][]string
}

// turn is the change to a scene. Where the engine does not answer, what is there
// stays, and says so.
func (s *screen) turn(to scene, live bool) change {
	c := change{Live: live, Parts: map[string]string{}, Lists: map[string][]string{}}
	now := map[string]string{}
	for _, p := range to.parts {
		now[p.id] = p.html
		if s.parts[p.id] != p.html {
			c.Parts[p.id] = p.html
		}
	}
	for id, order := range to.lists {
		if was, known := s.lists[id]; !known || !slices.Equal(was, order) {
			c.Lists[id] = order
		}
	}
	s.parts, s.lists = now, to.lists
	return c
}

// live streams what changes of a page: of one semaphore's, or of the overview.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request, v Viewer) error {
	q := queryOf(r)
	wanted := q.wish(v)
	name := ""
	if r.FormValue("name") != "" {
		var err error
		if name, err = d.named(r, v); err != nil {
			return err
		}
		wanted = wish{one: name}
	}
	looker, leave, err := d.watch.join(wanted)
	if err != nil {
		return err
	}
	defer leave()
	ctx, say, end, err := d.Service.Stream(w, r)
	if err != nil {
		return err
	}
	defer end()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies would keep it for themselves
	shown := &screen{}
	if !say(fmt.Sprintf("retry: %d\n\n", 2*every.Milliseconds())) {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.watch.life.Done():
			return nil
		case s := <-looker.news:
			if !say(event(shown.turn(d.scene(r, v, q, name, s), s.err == nil))) {
				return nil
			}
		}
	}
}

func (d *Dashboard) scene(r *http.Request, v Viewer, q query, name string, s *sight) scene {
	switch {
	case s.err != nil:
		var only scene
		only.add("trouble", "trouble", troubleOf(s))
		return only
	case name != "":
		return d.portrait(v, name, s).scene()
	}
	return d.listing(r, v, q, s).scene()
}

// event is a change as it is sent, on one line.
func event(c change) string {
	var line strings.Builder
	line.WriteString("event: look\ndata: ")
	out := json.NewEncoder(&line)
	out.SetEscapeHTML(false) // it would be three times as long
	if err := out.Encode(c); err != nil {
		return "\n" // there is nothing in it that could not be sent
	}
	return line.String() + "\n"
}
