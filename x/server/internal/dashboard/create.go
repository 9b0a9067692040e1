package dashboard

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema/fleet"
)

// A Creation is the configuration of a new semaphore.
type Creation struct {
	Capacity   int64
	TTL        time.Duration // 0: the default
	Window     time.Duration // of a rate; 0: not a rate
	MaxWaiters *int64        // nil: no bound
}

// A createForm is the form that creates a semaphore, with what was typed and why it was rejected.
type createForm struct {
	border
	Problem                                 Problem
	Name, Capacity, TTL, Window, MaxWaiters string
	Dialog                                  bool // the form is in the dialog of a page; false: it is a page of its own
}

// askNew responds with the empty form.
func (d *Dashboard) askNew(w http.ResponseWriter, r *http.Request, v Viewer) error {
	if !v.MayChange(v.Prefix()) {
		return errMayNot
	}
	d.showNew(w, r, v, http.StatusOK, createForm{Name: v.Prefix(), Capacity: "10"})
	return nil
}

func (d *Dashboard) showNew(w http.ResponseWriter, r *http.Request, v Viewer, status int, f createForm) {
	f.border = d.border(v, "New semaphore")
	template := "new"
	if byScript(r) {
		template, f.Dialog = "create", true
	}
	d.render(w, status, template, f)
}

// create creates a semaphore and redirects to its page.
func (d *Dashboard) create(w http.ResponseWriter, r *http.Request, v Viewer) error {
	typed := func(name string) string { return strings.TrimSpace(r.PostFormValue(name)) }
	f := createForm{Name: typed("name"), Capacity: typed("capacity"), TTL: typed("ttl"), Window: typed("window"), MaxWaiters: typed("max_waiters")}
	c, err := f.creation()
	if err == nil {
		err = fleet.CheckName(f.Name)
	}
	if err == nil {
		err = v.Create(r.Context(), f.Name, c)
	}
	if err != nil {
		f.Problem = d.rejection(r, action{name: f.Name, verb: "create"}, err)
		status := f.Problem.Status
		if byScript(r) {
			status = http.StatusOK // browsers log other statuses as errors; the form is shown again
		}
		d.showNew(w, r, v, status, f)
		return nil
	}
	d.feeds.changed(f.Name)
	at := "/ui/semaphore?name=" + url.QueryEscape(f.Name)
	if byScript(r) {
		w.Header().Set("HX-Redirect", at)
		return nil
	}
	http.Redirect(w, r, at, http.StatusSeeOther)
	return nil
}

// creation parses what was typed.
func (f createForm) creation() (c Creation, err error) {
	if c.Capacity, err = strconv.ParseInt(f.Capacity, 10, 64); err != nil || c.Capacity < 1 {
		return c, inputError{"The capacity is a whole number of permits, 1 or more."}
	}
	for _, field := range []struct {
		name, text string
		to         *time.Duration
	}{{"TTL", f.TTL, &c.TTL}, {"window", f.Window, &c.Window}} {
		if field.text == "" {
			continue
		}
		if *field.to, err = time.ParseDuration(field.text); err != nil || *field.to <= 0 {
			return c, inputError{"The " + field.name + " is a duration, such as 15s or 1m; or leave the field empty."}
		}
	}
	if f.MaxWaiters != "" {
		n, err := strconv.ParseInt(f.MaxWaiters, 10, 64)
		if err != nil || n < 0 {
			return c, inputError{"The bound of waiters is a whole number, 0 for no waiters; or leave the field empty for no bound."}
		}
		c.MaxWaiters = &n
	}
	return c, nil
}
