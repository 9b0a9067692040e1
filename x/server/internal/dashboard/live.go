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

// A page is HTML in parts, each an element with an id. Lists are elements whose children are
// added, removed and reordered. A page is immutable once created: viewers share it.
type page struct {
	parts map[string]template.HTML // by id
	lists map[string][]string      // ids of the children, by the list's id
}

// Part returns a part, for templates.
func (p page) Part(id string) template.HTML { return p.parts[id] }

// List returns the HTML of a list's children, for templates.
func (p page) List(id string) template.HTML {
	var all strings.Builder
	for _, child := range p.lists[id] {
		all.WriteString(string(p.parts[child]))
	}
	return template.HTML(all.String())
}

// A change is the difference between two pages. Browsers receive one after every read, even
// an empty one, so that they know that the page is live.
type change struct {
	Live  bool                     `json:"live"`  // the page is current
	Parts map[string]template.HTML `json:"parts"` // by id
	Lists map[string][]string      `json:"lists,omitempty"`
}

// diff returns the change from one page to another. Parts that the other page lacks stay.
func (p page) diff(to page, live bool) change {
	c := change{Live: live, Parts: map[string]template.HTML{}, Lists: map[string][]string{}}
	for id, html := range to.parts {
		if p.parts[id] != html {
			c.Parts[id] = html
		}
	}
	for id, order := range to.lists {
		if was, known := p.lists[id]; !known || !slices.Equal(was, order) {
			c.Lists[id] = order
		}
	}
	return c
}

// A revision is one version of a feed's page. It is encoded once for subscribers that have
// received the previous revision, and once for those that have received none.
type revision struct {
	page
	live   bool
	number int
	next   string
	whole  func() string
}

func newRevision(before *revision, to page, live bool) *revision {
	r := &revision{page: to, live: live, number: 1}
	r.whole = sync.OnceValue(func() string { return event(page{}.diff(to, live)) })
	if before != nil {
		r.number = before.number + 1
		r.next = event(before.diff(to, live))
	}
	return r
}

// after returns the event for a subscriber that has last received another revision, or nil.
func (r *revision) after(received *revision) string {
	switch {
	case received == nil:
		return r.whole()
	case r.number == received.number+1:
		return r.next
	}
	return event(received.diff(r.page, r.live))
}

// heartbeat is the longest interval between events of a stream. Browsers reconnect to a
// stream without events, and a store may be slow.
const heartbeat = 2 * time.Second

// live streams the changes of a page: of one semaphore's page, or of the overview.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request, v Viewer) error {
	what := d.overviewOf(r, v)
	if r.FormValue("name") != "" {
		name, err := d.named(r, v)
		if err != nil {
			return err
		}
		what = viewOf(r, name, v)
	}
	subscriber, leave, err := d.feeds.join(what)
	if err != nil {
		return err
	}
	defer leave()
	ctx, send, end, err := d.Service.Stream(w, r)
	if err != nil {
		return err
	}
	defer end()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // stop proxies from buffering
	if !send(fmt.Sprintf("retry: %d\n\n", 2*every.Milliseconds())) {
		return nil
	}
	var sent *revision
	for {
		text := "event: alive\ndata: 1\n\n" // data, because browsers ignore events without any
		select {
		case <-ctx.Done():
			return nil
		case <-d.feeds.life.Done():
			return nil
		case now := <-subscriber.updates:
			text, sent = now.after(sent), now
		case <-time.After(heartbeat):
		}
		if !send(text) {
			return nil
		}
	}
}

// event encodes a change as a server-sent event, on one line.
func event(c change) string {
	var line strings.Builder
	line.WriteString("event: update\ndata: ")
	out := json.NewEncoder(&line)
	out.SetEscapeHTML(false) // the result would be three times as long
	if err := out.Encode(c); err != nil {
		return "\n" // not reached: every change can be encoded
	}
	return line.String() + "\n"
}
