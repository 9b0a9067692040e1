package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A question asks for confirmation of an action. It names the semaphore and quantifies the
// consequences.
type question struct {
	border
	URL      string   // of the semaphore's page
	Ask      string   // Drain "db"?
	Then     []string // the consequences
	Button   string
	Danger   bool
	Sure     string            // label of a box that must be ticked first; "": no box
	Why      bool              // the form has a field for a reason
	Fields   map[string]string // hidden fields of the form that performs the action
	Commands []command         // the same action for a shell
	Harder   *question         // an alternative with a greater risk
	Dialog   bool              // it is asked in the dialog of a page; false: it is a page of its own
}

// confirm responds with the question for an action.
func (d *Dashboard) confirm(w http.ResponseWriter, r *http.Request, v Viewer) error {
	want, err := d.actionOf(r, v)
	if err != nil {
		return d.report(w, r, v, want, err)
	}
	if !v.MayChange(want.name) {
		return errMayNot
	}
	s, err := d.current(r.Context(), want.name)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		return d.report(w, r, v, want, err)
	}
	want, err = want.resolved(s)
	if err != nil {
		return d.report(w, r, v, want, err)
	}
	q, err := questionOf(want, s)
	if err != nil {
		return d.report(w, r, v, want, err)
	}
	q.border, q.URL = d.border(v, q.Ask), s.URL()
	q.Commands = commandsOf(r, want, d.Login)
	q.Fields["name"], q.Fields["do"] = want.name, want.verb
	template := "question"
	if byScript(r) {
		template, q.Dialog = "ask", true
		if q.Harder != nil {
			q.Harder.Dialog = true
		}
	}
	d.render(w, http.StatusOK, template, q)
	return nil
}

// current reads the current state of a semaphore with all of its leases, so that no decision
// is based on an earlier state.
func (d *Dashboard) current(ctx context.Context, name string) (semaphore, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	snapshot, err := d.Store.Inspect(ctx, name)
	if err != nil {
		return semaphore{}, err
	}
	there, _ := d.feeds.reader.ping().wait(ctx)
	return newSemaphore(name, snapshot, time.Now().Add(there.ahead)), nil
}

// questionOf returns the question for an action, given the semaphore's current state.
func questionOf(want action, s semaphore) (question, error) {
	name := strconv.Quote(s.Name)
	switch want.verb {
	case "drain":
		return question{
			Ask: fmt.Sprintf("Drain %s?", name), Button: "Drain " + s.Name, Fields: map[string]string{},
			Then: []string{
				fmt.Sprintf("%s in use %s held until released.", permits(s.InUse), plural(s.InUse, "stays", "stay")),
				rejected(s.Waiting()) + " New acquires are rejected as well, until you resume.",
			},
		}, nil
	case "resume":
		return question{
			Ask: fmt.Sprintf("Resume %s?", name), Button: "Resume " + s.Name, Fields: map[string]string{},
			Then: []string{fmt.Sprintf("%s of %s in use. The rest can be granted again at once.", count(s.InUse), permits(s.Config.Capacity))},
		}, nil
	case "resize":
		return question{
			Ask: fmt.Sprintf("Set the capacity of %s from %s to %s?", name, count(s.Config.Capacity), count(want.capacity)), Button: fmt.Sprintf("Set capacity to %s", count(want.capacity)),
			Then: resized(want, s),
			Fields: map[string]string{"capacity": strconv.FormatInt(want.capacity, 10), "ramp": strconv.FormatInt(want.ramp, 10),
				"version": strconv.FormatUint(s.Config.Version, 10)},
		}, nil
	case "revoke":
		return askRevoke(want, s)
	case "revoke-all":
		return askRevokeAll(want, s)
	}
	return question{
		Ask: fmt.Sprintf("Delete %s?", name), Button: "Delete " + s.Name, Danger: true, Fields: map[string]string{},
		Then: []string{
			fmt.Sprintf("%s in use by %s, and %s waiting: all holders lose their leases, and all waiters their places. They are notified only at their next heartbeat.",
				permits(s.InUse), holdersText(len(s.Leases)), count(s.Waiting())),
			"Its settings are deleted. The next acquire creates it again, and permits are granted while current ones may still be in use.",
		},
		Sure: "The current holders may be ignored",
	}, nil
}

func askRevoke(want action, s semaphore) (question, error) {
	i := slices.IndexFunc(s.Leases, func(l protocol.LeaseInfo) bool { return l.Seq == want.lease })
	if i < 0 {
		return question{}, errNoLease
	}
	alone := s
	alone.Leases, alone.Queue = s.Leases[i:i+1], nil
	alone = alone.listed("")
	h := alone.holders(alone.sessions(), true)[0]
	lease := strconv.FormatUint(uint64(h.Seq), 10)
	return question{
		Ask:    fmt.Sprintf("Revoke %s of %q, held for %s?", permits(h.Weight), s.Name, age(h.Held)),
		Button: "Notify the holder", Why: true, Fields: map[string]string{"lease": lease},
		Then: []string{
			"Held by " + describeHolder(h) + ".",
			fmt.Sprintf("The holder is notified. Its permits are free when it has confirmed, or has sent no heartbeat for %s.", s.TTL()),
		},
		Harder: &question{
			Ask: "Or at once", Button: "Revoke at once", Danger: true, Sure: "I know that this holder has stopped working",
			Then:   []string{fmt.Sprintf("This breaks the bound: its permits can be granted again now. If this holder is still working, more than %s are in use.", count(s.Config.Capacity))},
			Fields: map[string]string{"lease": lease, "at_once": "1", "name": s.Name, "do": want.verb},
		},
	}, nil
}

// errNoLease is the error for a lease that has ended in the meantime.
var errNoLease = fmt.Errorf("no such lease: %w", fs.ErrNotExist)

func describeHolder(h holder) string {
	if h.Details.About() == "" {
		return h.Instance
	}
	return h.Details.About() + " (" + h.Instance + ")"
}

func resized(want action, s semaphore) (then []string) {
	switch {
	case want.capacity == 0:
		then = append(then, fmt.Sprintf("%s in use %s held until released, and nothing is granted.", permits(s.InUse), plural(s.InUse, "stays", "stay")))
	case want.capacity <= s.InUse:
		then = append(then, fmt.Sprintf("%s in use: nothing is granted until %s released.", count(s.InUse), plural(s.InUse-want.capacity+1, "1 is", count(s.InUse-want.capacity+1)+" are")))
	default:
		then = append(then, fmt.Sprintf("%s in use, %s waiting.", count(s.InUse), count(s.Waiting())))
	}
	switch {
	case want.capacity > s.Effective && want.ramp > 0:
		then = append(then, fmt.Sprintf("It rises by %s per second, and is reached in %s.", count(want.ramp), age(rise(want.capacity-s.Effective, want.ramp))))
	case want.capacity > s.Effective:
		then = append(then, "It applies at once: all waiters that fit are granted together.")
	}
	return then
}

func holdersText(n int) string {
	return plural(int64(n), "1 holder", count(int64(n))+" holders")
}

// rejected returns what a drain does to the waiters.
func rejected(waiting int64) string {
	switch waiting {
	case 0:
		return "No acquire is waiting."
	case 1:
		return "The waiter is rejected."
	}
	return fmt.Sprintf("The %s waiters are rejected.", count(waiting))
}

// questionURL returns the URL of the question for an action.
func questionURL(verb, name string) string {
	return "/ui/confirm?" + url.Values{"do": {verb}, "name": {name}}.Encode()
}
