package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/history"
)

// A Check is a fact about the server or its store, and whether it is as it should be.
type Check struct {
	Name, Text string
	Advice     string // what to do; "": nothing
	Level      fleet.Level
}

// Mark returns the level as a word, and its tone.
func (c Check) Mark() state {
	switch c.Level {
	case fleet.LevelProblem:
		return state{Text: "problem", Tone: "wrong"}
	case fleet.LevelWarning:
		return state{Text: "check", Tone: "unsure"}
	}
	return state{Text: "good", Tone: "fine"}
}

// levelOf returns the level of a check that is either good or not.
func levelOf(good bool) fleet.Level {
	if good {
		return fleet.LevelOK
	}
	return fleet.LevelWarning
}

// mostActivity bounds the events on the page; older ones are on further pages.
const mostActivity = 200

// An activityPage lists what operators have changed.
type activityPage struct {
	border
	Filter, Kind string
	Kinds        []string
	Events       []history.Event
	Total        int
	Older        string // URL of the next page; "": none
}

// kinds are the kinds of events.
var kinds = []string{"resize", "configure", "drain", "resume", "revoke", "delete", "restart"}

func (d *Dashboard) activity(w http.ResponseWriter, r *http.Request, v Viewer) error {
	p := activityPage{border: d.border(v, "Activity"), Filter: strings.TrimSpace(r.FormValue("q")), Kind: r.FormValue("kind"), Kinds: kinds}
	p.Place = "activity"
	words := strings.Fields(strings.ToLower(p.Filter))
	for _, e := range d.feeds.reader.measures.Activity() {
		text := strings.ToLower(e.Semaphore + " " + e.By + " " + e.Detail)
		missing := slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
		if !missing && (p.Kind == "" || p.Kind == e.Kind) && (e.Semaphore == "" || strings.HasPrefix(e.Semaphore, v.Prefix())) {
			p.Events = append(p.Events, e)
		}
	}
	p.Total = len(p.Events)
	from := fromOf(r, p.Total)
	p.Events = p.Events[from:]
	if len(p.Events) > mostActivity {
		p.Events = p.Events[:mostActivity]
		p.Older = "/ui/activity?" + url.Values{"q": {p.Filter}, "kind": {p.Kind}, "from": {strconv.Itoa(from + mostActivity)}}.Encode()
	}
	d.render(w, http.StatusOK, "activity", p)
	return nil
}

// fromOf returns the number of entries on previous pages, 0 if a request has a wrong one.
func fromOf(r *http.Request, total int) int {
	from, err := strconv.Atoi(r.FormValue("from"))
	if err != nil || from < 0 || from > total {
		return 0
	}
	return from
}

// mostInspected bounds the semaphores that are read for the list of clients. Those with the most
// waiters and leases come first.
const mostInspected = 200

// A clientUse is a client, and what it uses of each semaphore.
type clientUse struct {
	protocol.Client
	Renewed time.Duration // time since its last heartbeat
	Late    bool          // it is later than two thirds of the TTL
	Uses    []clientSemaphore
}

type clientSemaphore struct {
	Name           string
	Permits        int64
	Leases, Queued int
}

func (u clientSemaphore) URL() string { return (semaphore{Name: u.Name}).URL() }

// A clientList is the clients of all semaphores, for all viewers.
type clientList struct {
	clients []clientUse
	skipped int // semaphores that were not read
}

// clients returns the clients that hold permits or wait.
func (r *reader) clients(ctx context.Context) (*clientList, error) {
	return fetch(r, &r.users, 5*every, false, func(ctx context.Context) (*clientList, error) {
		all, err := r.list(ctx, 5*every)
		if err != nil {
			return nil, err
		}
		there, _ := r.ping().wait(ctx)
		var used []*row
		for _, one := range all.rows {
			if one.holding > 0 || one.waiting > 0 {
				used = append(used, one)
			}
		}
		slices.SortStableFunc(used, func(a, b *row) int { return cmp.Compare(b.waiting+b.holding, a.waiting+a.holding) })
		l := &clientList{skipped: max(0, len(used)-mostInspected)}
		byInstance := map[string]*clientUse{}
		for _, one := range used[:min(len(used), mostInspected)] {
			stored, err := r.store.Recent(ctx, one.Name)
			if err != nil {
				l.skipped++
				continue // it was deleted, or cannot be read: its page states the cause
			}
			newSemaphore(one.Name, stored, time.Now().Add(there.ahead)).addClients(byInstance)
		}
		for _, c := range byInstance {
			l.clients = append(l.clients, *c)
		}
		slices.SortFunc(l.clients, func(a, b clientUse) int {
			return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Process, b.Process), cmp.Compare(a.Instance, b.Instance))
		})
		return l, nil
	}).wait(ctx)
}

// addClients adds what the clients of a semaphore use.
func (s semaphore) addClients(all map[string]*clientUse) {
	uses := map[protocol.Session]*clientSemaphore{}
	use := func(id protocol.Session) *clientSemaphore {
		if uses[id] == nil {
			uses[id] = &clientSemaphore{Name: s.Name}
		}
		return uses[id]
	}
	for _, l := range s.Leases {
		u := use(l.Session)
		u.Permits, u.Leases = u.Permits+l.Weight, u.Leases+1
	}
	for _, t := range s.Queue {
		use(t.Session).Queued++
	}
	for _, one := range s.Sessions {
		u := uses[one.Session]
		if u == nil {
			continue
		}
		since := s.since(one.Renewed)
		c := all[one.Client.Instance]
		if c == nil {
			c = &clientUse{Client: one.Client, Renewed: shownAge(since)}
			all[one.Client.Instance] = c
		}
		c.Renewed = min(c.Renewed, shownAge(since))
		c.Late = c.Late || since > span(s.Config.TTL)*2/3
		// Each lease of the HTTP API has a session of its own.
		if n := len(c.Uses); n > 0 && c.Uses[n-1].Name == s.Name {
			last := &c.Uses[n-1]
			last.Permits, last.Leases, last.Queued = last.Permits+u.Permits, last.Leases+u.Leases, last.Queued+u.Queued
			continue
		}
		c.Uses = append(c.Uses, *u)
	}
}

// mostClients bounds the clients of a page; others are on further pages.
const mostClients = 200

// A clientsPage lists clients, with the semaphores that the viewer may see.
type clientsPage struct {
	border
	Filter  string
	Clients []clientUse
	Total   int
	Next    string // URL of the next page; "": none
	Skipped int
	Failed  string
}

func (d *Dashboard) clients(w http.ResponseWriter, r *http.Request, v Viewer) error {
	p := clientsPage{border: d.border(v, "Clients"), Filter: strings.TrimSpace(r.FormValue("q"))}
	p.Place = "clients"
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	all, err := d.feeds.reader.clients(ctx)
	if err != nil {
		p.Failed = "The clients cannot be listed: the store does not respond."
	} else {
		p.Clients = visible(all.clients, v.Prefix(), strings.ToLower(p.Filter))
		p.Total = len(p.Clients)
		from := fromOf(r, p.Total)
		p.Clients = p.Clients[from:]
		if len(p.Clients) > mostClients {
			p.Clients = p.Clients[:mostClients]
			p.Next = "/ui/clients?" + url.Values{"q": {p.Filter}, "from": {strconv.Itoa(from + mostClients)}}.Encode()
		}
		if v.Prefix() == "" {
			p.Skipped = all.skipped
		}
	}
	d.render(w, http.StatusOK, "clients", p)
	return nil
}

// visible returns the clients with only the semaphores that a viewer may see, and that match.
func visible(all []clientUse, prefix, text string) (found []clientUse) {
	for _, c := range all {
		about := strings.ToLower(fmt.Sprintf("%s %s %d %s", c.Instance, c.Host, c.Process, c.Kind))
		uses := c.Uses
		c.Uses = nil
		for _, u := range uses {
			if strings.HasPrefix(u.Name, prefix) && (strings.Contains(about, text) || strings.Contains(strings.ToLower(u.Name), text)) {
				c.Uses = append(c.Uses, u)
			}
		}
		if len(c.Uses) > 0 {
			found = append(found, c)
		}
	}
	return found
}

func (d *Dashboard) store(w http.ResponseWriter, r *http.Request, v Viewer) error {
	p := struct {
		border
		Checks []Check
	}{border: d.border(v, "Store")}
	p.Place = "store"
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	var responds bool
	p.Checks, responds = d.feeds.reader.checkStore(ctx, v.Prefix())
	p.Checks = append(p.Checks, d.feeds.reader.measures.Checks(ctx, v.Prefix(), responds)...)
	urgency := map[fleet.Level]int{fleet.LevelProblem: 0, fleet.LevelWarning: 1, fleet.LevelOK: 2}
	slices.SortStableFunc(p.Checks, func(a, b Check) int { return cmp.Compare(urgency[a.Level], urgency[b.Level]) })
	d.render(w, http.StatusOK, "store", p)
	return nil
}

// mostAhead is the difference of clocks that is no problem: the times of leases are those of the
// store.
const mostAhead = 2 * time.Second

// checkStore checks that the store responds, and its clock. Viewers with a prefix are not shown the cause of
// an error, which may concern semaphores of others.
func (r *reader) checkStore(ctx context.Context, prefix string) (all []Check, responds bool) {
	now, err := r.ping().wait(ctx)
	if err != nil {
		cause := "The log of the server has the cause."
		if prefix == "" {
			cause = "Cause: " + err.Error() + "."
		}
		return []Check{{Name: "Reply", Level: fleet.LevelProblem, Text: "The store does not respond. Held permits stay held until they expire. " + cause, Advice: "What needs a reply was not checked: see this page again when the store responds."}}, false
	}
	return []Check{
		{Name: "Reply", Text: "The store replied in " + Brief(now.took) + ".", Level: levelOf(now.took < time.Second)},
		{Name: "Clock", Text: fmt.Sprintf("The store's clock is %s that of this server.", difference(now.ahead)), Level: levelOf(now.ahead.Abs() < mostAhead)},
	}, true
}

func difference(ahead time.Duration) string {
	switch {
	case ahead.Abs() < 10*time.Millisecond:
		return "the same as"
	case ahead > 0:
		return Brief(ahead) + " ahead of"
	}
	return Brief(-ahead) + " behind"
}
