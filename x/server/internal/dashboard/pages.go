package dashboard

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema/internal/survey"
)

const (
	most = 500 // semaphores on one page
	// surveyTime is how long a page waits for semaphores that may not be on it.
	// What was not read by then is read for the next page.
	surveyTime = 2 * time.Second
)

// A view is what a page shows: one semaphore, or some of all. What differs by viewer
// is in it, so that who has the same one may be shown the same.
type view struct {
	one       string
	mayChange bool // the one
	query
	prefix string // of all that may be seen
	try    string // a line to paste where there is nothing
}

func (d *Dashboard) overviewOf(r *http.Request, v Viewer) view {
	return view{query: queryOf(r), prefix: v.Prefix(), try: example(r, v, d.Login)}
}

func viewOf(name string, v Viewer) view { return view{one: name, mayChange: v.MayChange(name)} }

// A query is which semaphores the overview shows, and in which order.
type query struct {
	Filter string
	Sort   string
}

// orders are those of the overview; "waiting" is the default.
var orders = map[string]func(a, b survey.Load) int{
	"waiting": func(a, b survey.Load) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Use, a.Use))
	},
	"use": func(a, b survey.Load) int {
		return cmp.Or(cmp.Compare(b.Use, a.Use), cmp.Compare(b.Waiting, a.Waiting))
	},
	"name": nil,
}

func queryOf(r *http.Request) query {
	q := query{Filter: strings.TrimSpace(r.FormValue("q")), Sort: r.FormValue("sort")}
	if _, known := orders[q.Sort]; !known {
		q.Sort = "waiting"
	}
	return q
}

// Sorted is the address of the same in another order.
func (q query) Sorted(by string) string { return "/ui/?" + query{q.Filter, by}.encode() }

// Live is the address of the stream.
func (q query) Live() string { return "/ui/live?" + q.encode() }

func (q query) encode() string { return url.Values{"q": {q.Filter}, "sort": {q.Sort}}.Encode() }

// matching returns the names that fit and may be seen, in order.
func (v view) matching(names []name) (all []string) {
	filter := strings.ToLower(v.Filter)
	for _, name := range names {
		if strings.HasPrefix(name.is, v.prefix) && strings.Contains(name.lower, filter) {
			all = append(all, name.is)
		}
	}
	return all
}

// top returns the names of the page, in its order, as far as it is known.
func (a *asker) top(v view, names []string) []string {
	if orders[v.Sort] == nil {
		return names[:min(len(names), most)]
	}
	return a.survey.Top(names, most, orders[v.Sort])
}

// lookAtTop reads the semaphores of the page: those that are on it by what is known,
// some of the others, and those that are on it by what is known then. All viewers share
// what was read.
func (a *asker) lookAtTop(ctx context.Context, v view, names []string, within time.Duration) (shown []string, seen map[string]*glance) {
	shown = a.top(v, names)
	seen = a.look(ctx, shown, within, a.rest)
	if len(names) > len(shown) {
		soon, cancel := context.WithTimeout(ctx, surveyTime)
		defer cancel()
		maps.Copy(seen, a.look(soon, a.survey.Due(time.Now(), names, shown), within, a.rest))
	}
	shown = a.top(v, names)
	var missing []string
	for _, name := range shown {
		if g := seen[name]; g == nil || errors.Is(g.err, errNoTurn) {
			missing = append(missing, name)
		}
	}
	maps.Copy(seen, a.look(ctx, missing, within, a.rest))
	return shown, seen
}

// A trouble is that what is shown may not be as it is.
type trouble struct {
	Since time.Time // when the engine last answered; zero if it does
	What  string    // that cannot be read
	Why   string
}

// troubleOf is what a viewer is told of an error: what the engine says of its own, and
// nothing of what others look at. failing is since when it does not answer, if it is
// known that it does not.
func (a *asker) troubleOf(ctx context.Context, failing *time.Time, now time.Time, what string, err error) *trouble {
	t := &trouble{What: what, Why: err.Error()}
	t.Since, _ = a.away(ctx, failing, now, err)
	return t
}

// troubled is all that is shown of a page.
func troubled(t *trouble) scene {
	return scene{parts: map[string]template.HTML{"trouble": drawn("trouble", t)}}
}

// A listing is what the overview shows.
type listing struct {
	query
	scene
	survey.Totals   // of all that match
	Shown, Matching int
	Trouble         *trouble
	Try             string
}

func (a *asker) listing(ctx context.Context, v view, within time.Duration) listing {
	start := time.Now()
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l := listing{query: v.query, Try: v.try}
	names, err := a.list(soon, within)
	if err != nil {
		l.Trouble = a.troubleOf(ctx, &a.unlisted, start, "The semaphores cannot be listed", err)
		if v.prefix != "" {
			l.Trouble.Why = "the log of the server has more" // it may be about those of others
		}
		l.scene = l.draw(nil)
		return l
	}
	matching := v.matching(names)
	shown, seen := a.lookAtTop(soon, v, matching, within)
	var rows []*glance
	var failed error
	for _, name := range shown {
		g := seen[name]
		if g.gone {
			continue // meanwhile
		}
		rows = append(rows, g)
		if g.err != nil {
			failed = g.err
		}
	}
	if failed != nil && !slices.ContainsFunc(rows, func(g *glance) bool { return g.err == nil }) {
		// Nothing could be read. The names are known, so that each row says why.
		l.Trouble = a.troubleOf(ctx, &a.unread, start, "No semaphore can be read", failed)
	}
	l.Shown, l.Matching, l.Totals = len(rows), len(matching), a.survey.Totals(matching)
	l.scene = l.draw(rows)
	return l
}

// draw is the overview in parts that change on their own.
func (l listing) draw(rows []*glance) scene {
	ids := make([]string, len(rows))
	parts := map[string]template.HTML{"summary": drawn("summary", l), "trouble": drawn("trouble", l.Trouble), "empty": drawn("empty", l)}
	for i, g := range rows {
		ids[i] = g.ID()
		parts[ids[i]] = g.row()
	}
	return scene{parts, map[string][]string{"rows": ids}}
}

// example takes a permit, when pasted into a shell.
func example(r *http.Request, v Viewer, token bool) string {
	host := r.Host
	if strings.ContainsFunc(host, func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]", c)
	}) {
		host = "localhost" // a shell might understand it in its own way
	}
	line := "curl -X POST "
	if token {
		line += `-H "Authorization: Bearer $TOKEN" `
	}
	name := strings.ReplaceAll(url.PathEscape(v.Prefix()+"demo"), "'", "%27")
	return line + "'" + scheme(r) + "://" + host + "/v1/semaphores/" + name + "/leases?capacity=3'"
}

func (d *Dashboard) overview(w http.ResponseWriter, r *http.Request, v Viewer) error {
	what := d.overviewOf(r, v)
	l := d.watch.asker.listing(r.Context(), what, every)
	if err := r.Context().Err(); err != nil {
		return err // nobody waits for it
	}
	b := d.border(v, "Semaphores")
	b.Live = what.Live()
	d.render(w, http.StatusOK, "overview", struct {
		border
		listing
	}{b, l})
	return nil
}

// A portrait is what the page of one semaphore shows.
type portrait struct {
	*glance
	scene
	MayChange bool
	Trouble   *trouble
}

func (a *asker) portrait(ctx context.Context, v view, within time.Duration) portrait {
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	g := a.look(soon, []string{v.one}, within, a.first)[v.one]
	p := portrait{glance: g, MayChange: v.mayChange}
	if g.err != nil {
		p.Trouble = a.troubleOf(ctx, &a.unread, g.at, "This semaphore cannot be read", g.err)
		p.scene = troubled(p.Trouble)
		return p
	}
	p.scene = g.scene(a, v.mayChange)
	return p
}

func (d *Dashboard) semaphore(w http.ResponseWriter, r *http.Request, v Viewer) error {
	return d.showSemaphore(w, r, v, http.StatusOK, nil)
}

// showSemaphore is its page, with what became of something that was to be done.
func (d *Dashboard) showSemaphore(w http.ResponseWriter, r *http.Request, v Viewer, status int, done *outcome) error {
	name, err := d.named(r, v)
	if err != nil {
		return err
	}
	p := d.watch.asker.portrait(r.Context(), viewOf(name, v), every)
	if err := r.Context().Err(); err != nil {
		return err // nobody waits for it
	}
	b := d.border(v, name)
	page := "semaphore"
	switch {
	case p.Trouble != nil:
		page, status = "blank", http.StatusServiceUnavailable
	case p.gone && done == nil:
		return fs.ErrNotExist
	case p.gone:
		page = "after"
	}
	if page != "after" {
		b.Live = "/ui/live?" + url.Values{"name": {name}}.Encode()
	}
	d.render(w, status, page, struct {
		border
		portrait
		Outcome *outcome
	}{b, p, done})
	return nil
}
