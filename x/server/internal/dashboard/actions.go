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

// An action is a change that a form requests.
type action struct {
	name, verb     string
	capacity, ramp int64
	version        uint64
	lease          protocol.Seq
	leases         []protocol.Seq // of revoke-all
	group          leaseGroup     // of revoke-group, which becomes revoke-all in the question
	atOnce, sure   bool
	why            string
}

// An inputError describes invalid form input.
type inputError struct{ detail string }

func (u inputError) Error() string { return u.detail }

func (d *Dashboard) actionOf(r *http.Request, v Viewer) (want action, err error) {
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
			return want, inputError{"The capacity is a whole number of permits, 0 or more. The ramp is a whole number of permits per second; 0 is at once."}
		}
		if version := r.FormValue("version"); version != "" {
			want.version, err = strconv.ParseUint(version, 10, 64)
		}
	case "revoke":
		var lease uint64
		lease, err = strconv.ParseUint(r.FormValue("lease"), 10, 64)
		want.lease = protocol.Seq(lease)
	case "revoke-all":
		if want.leases, err = leasesOf(r.Form["leases"]); err != nil {
			return want, err
		}
	case "revoke-group":
		want.group = leaseGroup{r.FormValue("by"), r.FormValue("group")}
	case "drain", "resume", "delete":
	default:
		return want, inputError{fmt.Sprintf("Unknown action %q.", want.verb)}
	}
	if err != nil {
		err = inputError{"A number of this form is not valid: go back and try again."}
	}
	return want, err
}

// An actionResult is the result of an action.
type actionResult struct {
	Good        bool
	Title, Text string
	Gone        bool // the semaphore no longer has a page
}

// do performs a confirmed action.
func (d *Dashboard) do(w http.ResponseWriter, r *http.Request, v Viewer) error {
	want, err := d.actionOf(r, v)
	if err == nil && !want.sure && (want.verb == "delete" || want.atOnce) {
		err = inputError{"Tick the box first: it describes the risk."}
	}
	if err == nil {
		err = want.do(r.Context(), v)
		d.feeds.changed(want.name)
	}
	return d.report(w, r, v, want, err)
}

func (want action) do(ctx context.Context, v Viewer) error {
	switch want.verb {
	case "drain":
		return v.Drain(ctx, want.name)
	case "resume":
		return v.Resume(ctx, want.name)
	case "resize":
		return v.Resize(ctx, want.name, want.version, want.capacity, want.ramp)
	case "revoke-all":
		return want.revokeAll(ctx, v)
	case "revoke":
		return v.Revoke(ctx, want.name, want.lease, want.atOnce, want.why)
	case "delete":
		return v.Delete(ctx, want.name)
	}
	return inputError{"This form only asks: it performs nothing."} // revoke-group
}

// report responds with the result of an action: to htmx with a part, or else with the
// semaphore's page.
func (d *Dashboard) report(w http.ResponseWriter, r *http.Request, v Viewer, want action, err error) error {
	if want.name == "" {
		return err
	}
	status, done := http.StatusOK, want.done()
	if err != nil {
		p := d.rejection(r, want, err)
		status, done = p.Status, actionResult{Title: p.Title, Text: p.Detail}
		if byScript(r) {
			d.reject(w, r, p)
			return nil
		}
	}
	if byScript(r) {
		d.render(w, status, "result", done)
		return nil
	}
	return d.showSemaphore(w, r, v, status, &done)
}

func (want action) done() actionResult {
	name := strconv.Quote(want.name)
	o := actionResult{Good: true}
	switch {
	case want.verb == "drain":
		o.Title, o.Text = "Draining "+name, "Held leases stay until they are released; nothing else is granted."
	case want.verb == "resume":
		o.Title, o.Text = "Resumed "+name, "Permits are granted again."
	case want.verb == "resize":
		o.Title = fmt.Sprintf("The capacity of %s is %s", name, count(want.capacity))
		if want.ramp > 0 {
			o.Text = fmt.Sprintf("If that is more than before, it rises by %s a second.", count(want.ramp))
		}
	case want.atOnce:
		o.Title, o.Text = "Revoked at once", fmt.Sprintf("Lease %d of %s has ended; its permits may be granted again already.", want.lease, name)
	case want.verb == "revoke-all":
		o.Title, o.Text = holdersText(len(want.leases))+" notified", fmt.Sprintf("The leases of %s stay in the list until their holders have confirmed, or have expired.", name)
	case want.verb == "revoke":
		o.Title, o.Text = "The holder is notified", fmt.Sprintf("Lease %d of %s stays in the list until the holder has confirmed, or has expired.", want.lease, name)
	default:
		o.Title, o.Text, o.Gone = "Deleted "+name, "The next acquire creates it again.", true
	}
	return o
}

// rejection returns why an action was not performed, and what to do about it.
func (d *Dashboard) rejection(r *http.Request, want action, err error) Problem {
	var typed inputError
	switch {
	case errors.As(err, &typed):
		return Problem{Status: http.StatusBadRequest, Title: "Nothing was done", Detail: typed.detail}
	case want.verb == "revoke-all" && errors.Is(err, errNoLease):
		return Problem{Status: http.StatusNotFound, Title: "Nothing had to be done", Detail: "The selected leases have already ended."}
	case want.verb == "revoke" && errors.Is(err, fs.ErrNotExist):
		return Problem{Status: http.StatusNotFound, Title: "Nothing had to be done",
			Detail: fmt.Sprintf("Lease %d of %q has already ended: it was released, or has expired.", want.lease, want.name)}
	case want.verb == "create" && d.explain(r, err).Status == http.StatusPreconditionFailed:
		return Problem{Status: http.StatusPreconditionFailed, Title: "Nothing was done", Detail: fmt.Sprintf("A semaphore %q exists already.", want.name)}
	case errors.Is(err, protocol.ErrConflict):
		return Problem{Status: http.StatusPreconditionFailed, Title: "Nothing was done",
			Detail: fmt.Sprintf("%q was changed in the meantime. Check its current settings and try again.", want.name)}
	}
	p := d.explain(r, err)
	p.Title = "Not done. " + p.Title
	return p
}
