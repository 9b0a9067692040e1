package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"github.com/sema-go/sema/fleet/protocol"
)

// A wanted is something to be done, as a form says it.
type wanted struct {
	name, verb     string
	capacity, ramp int64
	version        uint64
	lease          protocol.Seq
	atOnce, sure   bool
	why            string
}

// unfit is for what a person has typed.
type unfit struct{ detail string }

func (u unfit) Error() string { return u.detail }

func (d *Dashboard) wantedOf(r *http.Request, v Viewer) (want wanted, err error) {
	if want.name, err = d.named(r, v); err != nil {
		return want, err
	}
	want.verb, want.why = r.FormValue("do"), strings.TrimSpace(r.FormValue("why"))
	want.atOnce, want.sure = r.FormValue("at_once") != "", r.FormValue("sure") != ""
	switch want.verb {
	case "resize":
		var bad [2]error
		want.capacity, bad[0] = strconv.ParseInt(strings.TrimSpace(r.FormValue("capacity")), 10, 64)
		want.ramp, bad[1] = strconv.ParseInt(strings.TrimSpace(r.FormValue("ramp")), 10, 64)
		if errors.Join(bad[:]...) != nil || want.capacity < 0 || want.ramp < 0 {
			return want, unfit{"A capacity is a whole number of permits, 0 or more; a ramp is one of permits a second, and 0 is at once."}
		}
		if version := r.FormValue("version"); version != "" {
			want.version, err = strconv.ParseUint(version, 10, 64)
		}
	case "release":
		var lease uint64
		lease, err = strconv.ParseUint(r.FormValue("lease"), 10, 64)
		want.lease = protocol.Seq(lease)
	case "drain", "resume", "delete":
	default:
		return want, unfit{fmt.Sprintf("There is nothing here that is called %q.", want.verb)}
	}
	if err != nil {
		err = unfit{"This is not a number that this page has given: go back, and try again."}
	}
	return want, err
}

// An outcome is what became of it.
type outcome struct {
	Good        bool
	Title, Text string
	Gone        bool // there is no page of it any more
}

// do does what was confirmed.
func (d *Dashboard) do(w http.ResponseWriter, r *http.Request, v Viewer) error {
	want, err := d.wantedOf(r, v)
	if err == nil && !want.sure && (want.verb == "delete" || want.atOnce) {
		err = unfit{"Tick the box first: it says what you take upon you."}
	}
	if err == nil {
		err = want.do(r.Context(), v)
		d.watch.changed(want.name)
	}
	return d.report(w, r, v, want, err)
}

func (want wanted) do(ctx context.Context, v Viewer) error {
	switch want.verb {
	case "drain":
		return v.Drain(ctx, want.name)
	case "resume":
		return v.Resume(ctx, want.name)
	case "resize":
		return v.Resize(ctx, want.name, want.version, want.capacity, want.ramp)
	case "release":
		return v.Revoke(ctx, want.name, want.lease, want.atOnce, want.why)
	}
	return v.Delete(ctx, want.name)
}

// report says what became of it: on the page that asked, or on one of its own.
func (d *Dashboard) report(w http.ResponseWriter, r *http.Request, v Viewer, want wanted, err error) error {
	if want.name == "" {
		return err
	}
	status, done := http.StatusOK, want.done()
	if err != nil {
		p := d.refusal(r, want, err)
		status, done = p.Status, outcome{Title: p.Title, Text: p.Detail}
		if byScript(r) {
			d.refuse(w, r, p)
			return nil
		}
	}
	if byScript(r) {
		d.render(w, status, "outcome", done)
		return nil
	}
	return d.showSemaphore(w, r, v, status, &done)
}

func (want wanted) done() outcome {
	name := strconv.Quote(want.name)
	o := outcome{Good: true}
	switch {
	case want.verb == "drain":
		o.Title, o.Text = "Draining "+name, "What is in use goes on until it is given back; nobody else is let in."
	case want.verb == "resume":
		o.Title, o.Text = "Resumed "+name, "Permits are granted again."
	case want.verb == "resize":
		o.Title = fmt.Sprintf("The capacity of %s is %s", name, count(want.capacity))
		if want.ramp > 0 {
			o.Text = fmt.Sprintf("If that is more than before, it rises by %s a second.", count(want.ramp))
		}
	case want.atOnce:
		o.Title, o.Text = "Taken back at once", fmt.Sprintf("Lease %d of %s has ended; somebody else may have its permits already.", want.lease, name)
	case want.verb == "release":
		o.Title, o.Text = "The holder is told to let go", fmt.Sprintf("Lease %d of %s stays in the list until it has, or is taken for dead.", want.lease, name)
	default:
		o.Title, o.Text, o.Gone = "Deleted "+name, "The next acquire makes it anew.", true
	}
	return o
}

// refusal is why it was not done, and what to do about that.
func (d *Dashboard) refusal(r *http.Request, want wanted, err error) Problem {
	var typed unfit
	switch {
	case errors.As(err, &typed):
		return Problem{Status: http.StatusBadRequest, Title: "Nothing was done", Detail: typed.detail}
	case want.verb == "release" && errors.Is(err, fs.ErrNotExist):
		return Problem{Status: http.StatusNotFound, Title: "Nothing had to be done",
			Detail: fmt.Sprintf("Lease %d of %q is gone already: it was given back, or has run out.", want.lease, want.name)}
	case errors.Is(err, protocol.ErrConflict):
		return Problem{Status: http.StatusPreconditionFailed, Title: "Nothing was done",
			Detail: fmt.Sprintf("Somebody has changed %q since you were asked. Look at its settings as they are now, and try again.", want.name)}
	}
	p := d.explain(r, err)
	p.Title = "Not done. " + p.Title
	return p
}
