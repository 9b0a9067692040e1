package dashboard

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A scene is a page in parts, each an element with an id. Lists are elements whose
// children come, go and change places. It is not changed once it is made: many see it.
type scene struct {
	parts map[string]template.HTML // by id
	lists map[string][]string      // ids of the children, by that of the list
}

// Part is one of them, for the page.
func (s scene) Part(id string) template.HTML { return s.parts[id] }

// List is the children of one, for the page.
func (s scene) List(id string) template.HTML {
	var all strings.Builder
	for _, child := range s.lists[id] {
		all.WriteString(string(s.parts[child]))
	}
	return template.HTML(all.String())
}

// A change is what of a scene is not as it was. A page gets one at every look, also
// if there is nothing in it: so it knows that it is live.
type change struct {
	Live  bool                     `json:"live"`  // what is shown is as it is now
	Parts map[string]template.HTML `json:"parts"` // by id
	Lists map[string][]string      `json:"lists,omitempty"`
}

// turn is the change from a scene to another one. Where the engine does not answer,
// what is there stays, and says so.
func (s scene) turn(to scene, live bool) change {
	c := change{Live: live, Parts: map[string]template.HTML{}, Lists: map[string][]string{}}
	for id, html := range to.parts {
		if s.parts[id] != html {
			c.Parts[id] = html
		}
	}
	for id, order := range to.lists {
		if was, known := s.lists[id]; !known || !slices.Equal(was, order) {
			c.Lists[id] = order
		}
	}
	return c
}

// A frame is a scene as all on a stage are shown it. What is sent is made once for
// those who have seen the frame before, and once for those who have seen none.
type frame struct {
	scene
	live   bool
	number int
	next   string
	whole  func() string
}

func newFrame(before *frame, to scene, live bool) *frame {
	f := &frame{scene: to, live: live, number: 1}
	f.whole = sync.OnceValue(func() string { return event(scene{}.turn(to, live)) })
	if before != nil {
		f.number = before.number + 1
		f.next = event(before.turn(to, live))
	}
	return f
}

// after is what is sent to somebody who has seen another frame, or none.
func (f *frame) after(seen *frame) string {
	switch {
	case seen == nil:
		return f.whole()
	case f.number == seen.number+1:
		return f.next
	}
	return event(seen.turn(f.scene, f.live))
}

// signOfLife is how often a page hears something. It takes a stream that says nothing
// for dead, and an engine may be slow.
const signOfLife = 2 * time.Second

// live streams what changes of a page: of one semaphore's, or of the overview.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request, v Viewer) error {
	what := d.overviewOf(r, v)
	if r.FormValue("name") != "" {
		name, err := d.named(r, v)
		if err != nil {
			return err
		}
		what = viewOf(name, v)
	}
	looker, leave, err := d.watch.join(what)
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
	if !say(fmt.Sprintf("retry: %d\n\n", 2*every.Milliseconds())) {
		return nil
	}
	var shown *frame
	for {
		text := "event: alive\ndata: 1\n\n" // without data, browsers would not tell the page
		select {
		case <-ctx.Done():
			return nil
		case <-d.watch.life.Done():
			return nil
		case f := <-looker.news:
			text, shown = f.after(shown), f
		case <-time.After(signOfLife):
		}
		if !say(text) {
			return nil
		}
	}
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
