package dashboard

import (
	"context"
	"io/fs"
	"net/http"
	"net/url"
	"time"
)

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
	p.page = s.page(r, v.mayChange)
	return p
}

func (d *Dashboard) semaphore(w http.ResponseWriter, r *http.Request, v Viewer) error {
	return d.showSemaphore(w, r, v, http.StatusOK, nil)
}

// showSemaphore responds with the page of a semaphore, and the result of an action.
func (d *Dashboard) showSemaphore(w http.ResponseWriter, r *http.Request, v Viewer, status int, done *actionResult) error {
	name, err := d.named(r, v)
	if err != nil {
		return err
	}
	p := d.feeds.reader.semaphorePage(r.Context(), viewOf(r, name, v), every)
	if err := r.Context().Err(); err != nil {
		return err // the client has gone
	}
	b := d.border(v, name)
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
		b.Live = "/ui/live?" + url.Values{"name": {name}, "after": {p.after}}.Encode()
	}
	d.render(w, status, template, struct {
		border
		semaphorePage
		Result *actionResult
	}{b, p, done})
	return nil
}
