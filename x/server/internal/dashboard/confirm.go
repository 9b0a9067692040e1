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

// A question is asked before anything is done. It names the semaphore and says what
// will come of it, in numbers.
type question struct {
	border
	URL    string   // of the semaphore's page
	Ask    string   // Drain "db"?
	Then   []string // what comes of it
	Button string
	Danger bool
	Sure   string            // what has to be ticked first; "" for nothing
	Why    bool              // the holder is told why
	Fields map[string]string // of the form that does it
	Harder *question         // another way that is worse, with a warning
}

// confirm asks.
func (d *Dashboard) confirm(w http.ResponseWriter, r *http.Request, v Viewer) error {
	want, err := d.wantedOf(r, v)
	if err != nil {
		return d.report(w, r, v, want, err)
	}
	if !v.MayChange(want.name) {
		return errMayNot
	}
	s, err := d.moment(r.Context(), want.name)
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

// moment is a semaphore as it is right now, with all of its leases: who decides by it
// should not do so by what was.
func (d *Dashboard) moment(ctx context.Context, name string) (semaphore, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	snapshot, err := d.Engine.Inspect(ctx, name)
	if err != nil {
		return semaphore{}, err
	}
	ahead, _ := d.watch.asker.ahead(every).wait(ctx)
	return seen(name, snapshot, time.Now().Add(ahead)), nil
}

// questionOf is the question about a semaphore as it is.
func questionOf(want wanted, s semaphore) (question, error) {
	name := strconv.Quote(s.Name)
	switch want.verb {
	case "drain":
		return question{
			Ask: fmt.Sprintf("Drain %s?", name), Button: "Drain " + s.Name, Fields: map[string]string{},
			Then: []string{
				fmt.Sprintf("%s in use %s until given back.", permits(s.InUse), plural(s.InUse, "stays out", "stay out")),
				refused(s.Waiting()) + " Everybody who comes is refused as well, until you resume.",
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
	case "release":
		return askRelease(want, s)
	}
	return question{
		Ask: fmt.Sprintf("Delete %s?", name), Button: "Delete " + s.Name, Danger: true, Fields: map[string]string{},
		Then: []string{
			fmt.Sprintf("%s in use by %s, and %s waiting: all of them lose what they have, and hear of it only with their next sign of life.",
				permits(s.InUse), holdersText(len(s.Leases)), count(s.Waiting())),
			"Its settings are forgotten. The next acquire makes it anew, and grants permits while those of now may still be at work.",
		},
		Sure: "Those who hold permits now may be ignored",
	}, nil
}

func askRelease(want wanted, s semaphore) (question, error) {
	i := slices.IndexFunc(s.Leases, func(l protocol.LeaseInfo) bool { return l.Seq == want.lease })
	if i < 0 {
		return question{}, errNoLease
	}
	alone := s
	alone.Leases, alone.Queue = s.Leases[i:i+1], nil
	h := alone.shortened().holders(true)[0]
	lease := strconv.FormatUint(uint64(h.Seq), 10)
	return question{
		Ask:    fmt.Sprintf("Take %s of %q back, after %s?", permits(h.Weight), s.Name, age(h.Held)),
		Button: "Ask it to let go", Why: true, Fields: map[string]string{"lease": lease},
		Then: []string{
			"Held by " + whoIs(h) + ".",
			fmt.Sprintf("The holder is told to stop. The capacity comes back when it says that it has, or when nothing is heard of it for %s.", s.TTL()),
		},
		Harder: &question{
			Ask: "Or at once", Button: "Take it back at once", Danger: true, Sure: "I know that this holder does not work any more",
			Then:   []string{fmt.Sprintf("This breaks the bound: somebody else is let in now, and if this holder still works there are more than %s.", count(s.Config.Capacity))},
			Fields: map[string]string{"lease": lease, "at_once": "1", "name": s.Name, "do": want.verb},
		},
	}, nil
}

// errNoLease is for a lease that ended while somebody thought about it.
var errNoLease = fmt.Errorf("the lease is gone: %w", fs.ErrNotExist)

func whoIs(h holder) string {
	if h.Details.About() == "" {
		return h.Instance
	}
	return h.Details.About() + " (" + h.Instance + ")"
}

func resized(want wanted, s semaphore) (then []string) {
	switch {
	case want.capacity == 0:
		then = append(then, fmt.Sprintf("%s in use %s until given back, and nobody is let in.", permits(s.InUse), plural(s.InUse, "stays out", "stay out")))
	case want.capacity <= s.InUse:
		then = append(then, fmt.Sprintf("%s in use: nobody is let in until %s back.", count(s.InUse), plural(s.InUse-want.capacity+1, "1 is", count(s.InUse-want.capacity+1)+" are")))
	default:
		then = append(then, fmt.Sprintf("%s in use, %s waiting.", count(s.InUse), count(s.Waiting())))
	}
	switch {
	case want.capacity > s.Effective && want.ramp > 0:
		then = append(then, fmt.Sprintf("It rises by %s a second, and is there in %s.", count(want.ramp), age(rise(want.capacity-s.Effective, want.ramp))))
	case want.capacity > s.Effective:
		then = append(then, "It is there at once: as many as fit are let in together.")
	}
	return then
}

func holdersText(n int) string {
	return plural(int64(n), "1 holder", count(int64(n))+" holders")
}

// refused is what becomes of those in line.
func refused(waiting int64) string {
	switch waiting {
	case 0:
		return "Nobody waits."
	case 1:
		return "The one who waits is refused."
	}
	return fmt.Sprintf("The %s who wait are refused.", count(waiting))
}

// questionURL is where a question is asked.
func questionURL(verb, name string) string {
	return "/ui/confirm?" + url.Values{"do": {verb}, "name": {name}}.Encode()
}
