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

// A question is asked before an action. It names the semaphore and the consequences, in
// numbers.
type question struct {
	border
	URL    string   // of the semaphore's page
	Ask    string   // Drain "db"?
	Then   []string // the consequences
	Button string
	Danger bool
	Sure   string            // what has to be ticked first; "" for nothing
	Why    bool              // the viewer may give a reason
	Fields map[string]string // of the form that performs it
	Harder *question         // another way with a greater risk
}

// confirm responds with the question of an action.
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
	q, err := questionOf(want, s)
	if err != nil {
		return d.report(w, r, v, want, err)
	}
	q.border, q.URL = d.border(v, q.Ask), s.URL()
	q.Fields["name"], q.Fields["do"] = want.name, want.verb
	template := "question"
	if byScript(r) {
		template = "ask"
	}
	d.render(w, http.StatusOK, template, q)
	return nil
}

// current returns a semaphore as it is right now, with all of its leases: decisions are
// not based on an earlier state.
func (d *Dashboard) current(ctx context.Context, name string) (semaphore, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	snapshot, err := d.Store.Inspect(ctx, name)
	if err != nil {
		return semaphore{}, err
	}
	ahead, _ := d.feeds.reader.ahead().wait(ctx)
	return seen(name, snapshot, time.Now().Add(ahead)), nil
}

// questionOf returns the question about a semaphore as it is.
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
			Then: []string{fmt.Sprintf("%s of %s in use. The rest is granted again, at once.", count(s.InUse), permits(s.Config.Capacity))},
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
	}
	return question{
		Ask: fmt.Sprintf("Delete %s?", name), Button: "Delete " + s.Name, Danger: true, Fields: map[string]string{},
		Then: []string{
			fmt.Sprintf("%s in use by %s, and %s waiting: all of them lose their leases, and are notified only with their next heartbeat.",
				permits(s.InUse), holdersText(len(s.Leases)), count(s.Waiting())),
			"Its settings are deleted. The next acquire creates it anew, and grants permits while those of now may still be in use.",
		},
		Sure: "The present holders may be ignored",
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
			"Held by " + whoIs(h) + ".",
			fmt.Sprintf("The holder is notified. Its permits are free when it has confirmed, or has sent no heartbeat for %s.", s.TTL()),
		},
		Harder: &question{
			Ask: "Or at once", Button: "Revoke at once", Danger: true, Sure: "I know that this holder does not work any more",
			Then:   []string{fmt.Sprintf("This breaks the bound: its permits are granted again now, and if this holder still works more than %s are in use.", count(s.Config.Capacity))},
			Fields: map[string]string{"lease": lease, "at_once": "1", "name": s.Name, "do": want.verb},
		},
	}, nil
}

// errNoLease is about a lease that has ended meanwhile.
var errNoLease = fmt.Errorf("the lease is gone: %w", fs.ErrNotExist)

func whoIs(h holder) string {
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
		then = append(then, fmt.Sprintf("It rises by %s a second, and is reached in %s.", count(want.ramp), age(rise(want.capacity-s.Effective, want.ramp))))
	case want.capacity > s.Effective:
		then = append(then, "It applies at once: as many waiters as fit are granted together.")
	}
	return then
}

func holdersText(n int) string {
	return plural(int64(n), "1 holder", count(int64(n))+" holders")
}

// rejected returns what becomes of waiters.
func rejected(waiting int64) string {
	switch waiting {
	case 0:
		return "Nobody waits."
	case 1:
		return "The waiter is rejected."
	}
	return fmt.Sprintf("The %s waiters are rejected.", count(waiting))
}

// questionURL returns the address of the question of an action.
func questionURL(verb, name string) string {
	return "/ui/confirm?" + url.Values{"do": {verb}, "name": {name}}.Encode()
}
