package dashboard

import (
	"cmp"
	"context"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A snapshot is the result of one read of a semaphore, for all viewers. Each variant of its
// page is rendered when the first viewer needs it.
type snapshot struct {
	semaphore
	at    time.Time // on the local clock
	gone  bool      // the semaphore does not exist
	err   error     // the read failed
	parts *parts

	mu    sync.Mutex
	pages map[variant]page

	times    []Figure
	holdings []holding
	usage    []usageChart
}

// A variant of a page differs between viewers.
type variant struct {
	mayChange bool
	span      time.Duration
}

func newSnapshot(s semaphore, p *parts) *snapshot {
	return &snapshot{semaphore: s, parts: p, pages: map[variant]page{}}
}

// figures holds what most parts show: while it is equal, the parts are equal.
type figures struct {
	config                   protocol.Config
	effective, inUse         int64
	holding, waiting, listed int64
	next, free               string
	undecided                bool
}

func (s semaphore) figures() figures {
	return figures{s.Config, s.Effective, s.InUse, s.holding, s.waiting, int64(len(s.Leases)), s.next, s.free, s.undecided()}
}

// page returns the semaphore's page, in parts that change independently.
func (s *snapshot) page(r *reader, v variant) page {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, known := s.pages[v]
	if !known {
		p = s.render(r, v)
		s.pages[v] = p
	}
	return p
}

func (s *snapshot) render(r *reader, v variant) page {
	mayChange := v.mayChange
	p := page{map[string]template.HTML{}, map[string][]string{"holders": {}, "waiters": {}}}
	p.parts["trouble"] = render("trouble", (*trouble)(nil))
	if s.gone {
		p.parts["state"] = render("gone", nil)
		return p
	}
	plain := []string{"state", "settings", "holders-note", "waiters-note"}
	if mayChange {
		plain = append(plain, "verbs")
	}
	shown, sessions := s.figures(), s.sessions()
	for _, id := range plain {
		p.parts[id] = s.parts.render(id, id, shown, s.semaphore)
	}
	p.parts["holdings"] = render("holdings", struct {
		Holdings  []holding
		MayChange bool
	}{s.holdings, mayChange})
	p.parts["usage"] = render("usage", s.usage)
	s.measured(r, v.span, p)
	for _, h := range s.holders(sessions, mayChange) {
		id := h.ID()
		key := id
		if mayChange {
			key += " with a button"
		}
		p.parts[id] = s.parts.render(key, "holder", h, h)
		p.lists["holders"] = append(p.lists["holders"], id)
	}
	for _, one := range s.waiters(sessions) {
		p.parts[one.ID()] = s.parts.render(one.ID(), "waiter", one, one)
		p.lists["waiters"] = append(p.lists["waiters"], one.ID())
	}
	return p
}

// viewOf returns the view of one semaphore.
func viewOf(r *http.Request, name string, v Viewer) view {
	return view{name: name, after: r.FormValue("after"), mayChange: v.MayChange(name), span: spanOf(r.FormValue("range"))}
}

// A semaphorePage is the page of one semaphore.
type semaphorePage struct {
	*snapshot
	page
	MayChange bool
	Trouble   *trouble
}

func (r *reader) semaphorePage(ctx context.Context, v view, within time.Duration) semaphorePage {
	soon, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s := r.snapshot(soon, entryKey{v.name, v.after}, within)
	p := semaphorePage{snapshot: s, MayChange: v.mayChange}
	if s.err != nil {
		p.Trouble = r.troubleOf(ctx, s.at, "This semaphore cannot be read", s.err)
		p.page = troubled(p.Trouble)
		return p
	}
	p.page = s.page(r, variant{v.mayChange, cmp.Or(v.span, ranges[0].Span)})
	return p
}

func (d *Dashboard) semaphore(w http.ResponseWriter, r *http.Request, v Viewer) error {
	return d.showSemaphore(w, r, v, http.StatusOK, nil)
}

// showSemaphore responds with the page of a semaphore, and with the result of an action.
func (d *Dashboard) showSemaphore(w http.ResponseWriter, r *http.Request, v Viewer, status int, done *actionResult) error {
	name, err := d.named(r, v)
	if err != nil {
		return err
	}
	p := d.feeds.reader.semaphorePage(r.Context(), viewOf(r, name, v), every)
	if err := r.Context().Err(); err != nil {
		return err // the client has disconnected
	}
	b := d.border(v, name)
	b.Place = "semaphore"
	template := "semaphore"
	switch {
	case p.Trouble != nil:
		template, status = "blank", http.StatusServiceUnavailable
	case p.gone && done == nil:
		return fs.ErrNotExist
	case p.gone:
		template = "after"
	}
	if template != "after" {
		b.Live = "/ui/live?" + url.Values{"name": {name}, "after": {p.after}, "range": {r.FormValue("range")}}.Encode()
	}
	d.render(w, status, template, struct {
		border
		semaphorePage
		Result *actionResult
	}{b, p, done})
	return nil
}
