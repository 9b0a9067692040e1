package dashboard

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pageSize is the number of semaphores per page of the overview.
const pageSize = 500

// A view identifies what a page shows: one semaphore, or the overview. It includes everything
// that differs between viewers, so that viewers of the same view can share a page.
type view struct {
	name      string        // of one semaphore; "": the overview
	after     string        // cursor of the semaphore's page; "": first page
	mayChange bool          // the viewer may change the semaphore
	span      time.Duration // time range of the charts; 0: the default
	query
	prefix string // of the names that the viewer may see
	try    string // example command for an empty overview
}

func (d *Dashboard) overviewOf(r *http.Request, v Viewer) view {
	return view{query: queryOf(r), prefix: v.Prefix(), try: example(r, v, d.Login)}
}

// A query selects and orders the semaphores of the overview.
type query struct {
	Filter string
	Sort   string
	From   int // number of semaphores on previous pages
}

// orders maps the overview's sort orders to comparisons. The default is "waiting".
var orders = map[string]func(a, b row) int{
	"waiting": func(a, b row) int {
		return cmp.Or(cmp.Compare(b.waiting, a.waiting), cmp.Compare(b.use(), a.use()))
	},
	"use": func(a, b row) int {
		return cmp.Or(cmp.Compare(b.use(), a.use()), cmp.Compare(b.waiting, a.waiting))
	},
	"name": nil,
}

func queryOf(r *http.Request) query {
	q := query{Filter: strings.TrimSpace(r.FormValue("q")), Sort: r.FormValue("sort")}
	if _, known := orders[q.Sort]; !known {
		q.Sort = "waiting"
	}
	if from, err := strconv.Atoi(r.FormValue("from")); err == nil && from > 0 {
		q.From = from - from%pageSize
	}
	return q
}

// Sorted returns the URL of the overview in another order.
func (q query) Sorted(by string) string { return "/ui/?" + query{Filter: q.Filter, Sort: by}.encode() }

// Live returns the URL of the stream.
func (q query) Live() string { return "/ui/live?" + q.encode() }

func (q query) encode() string {
	values := url.Values{"q": {q.Filter}, "sort": {q.Sort}}
	if q.From > 0 {
		values.Set("from", strconv.Itoa(q.From))
	}
	return values.Encode()
}

// matching returns the rows that match the filter and that the viewer may see.
func (v view) matching(rows []row) (all []row) {
	filter := strings.ToLower(v.Filter)
	for _, one := range rows {
		if strings.HasPrefix(one.Name, v.prefix) && strings.Contains(one.lower, filter) {
			all = append(all, one)
		}
	}
	return all
}

// A trouble explains why a page may be outdated.
type trouble struct {
	Since time.Time // when the store stopped responding; zero: it responds
	What  string    // what cannot be read
	Why   string
}

// troubleOf returns the trouble to show for an error that occurred at a time.
func (r *reader) troubleOf(ctx context.Context, now time.Time, what string, err error) *trouble {
	t := &trouble{What: what, Why: err.Error()}
	t.Since, _ = r.outage(ctx, now, err)
	return t
}

// troubled returns the parts of a page that change in an outage.
func troubled(t *trouble) page {
	return page{parts: map[string]template.HTML{"trouble": render("trouble", t)}}
}

// An overview is the page that lists all or the matching semaphores.
type overview struct {
	query
	page
	Waiting, Full   int64 // waiters, and semaphores without a free permit, of all that match
	Shown, Matching int
	Trouble         *trouble
	Try             string
}

// First and Last return the positions of the first and last semaphore shown.
func (o overview) First() int { return o.From + 1 }
func (o overview) Last() int  { return o.From + o.Shown }

// Next and Previous return the URLs of the adjacent pages, "" if there is none.
func (o overview) Next() string {
	if o.Last() >= o.Matching {
		return ""
	}
	return "/ui/?" + query{o.Filter, o.Sort, o.From + pageSize}.encode()
}

func (o overview) Previous() string {
	if o.From == 0 {
		return ""
	}
	return "/ui/?" + query{o.Filter, o.Sort, o.From - pageSize}.encode()
}

func (r *reader) overview(ctx context.Context, v view, within time.Duration) overview {
	start := time.Now()
	soon, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o := overview{query: v.query, Try: v.try}
	all, err := r.list(soon, within)
	if err != nil {
		o.Trouble = r.troubleOf(ctx, start, "The semaphores cannot be listed", err)
		if v.prefix != "" {
			o.Trouble.Why = "the server's log has the cause" // the error may name semaphores that the viewer may not see
		}
	}
	rows := v.matching(all)
	for _, one := range rows {
		o.Waiting += one.waiting
		if one.InUse >= one.Effective {
			o.Full++
		}
	}
	if order := orders[v.Sort]; order != nil {
		slices.SortStableFunc(rows, order)
	}
	o.Matching = len(rows)
	o.From = min(o.From, max(0, o.Matching-1)/pageSize*pageSize) // some may have been deleted in the meantime
	rows = rows[o.From:min(o.From+pageSize, len(rows))]
	o.Shown = len(rows)
	o.page = o.render(rows, r.rendered)
	o.page.parts["deadlocks"] = r.deadlocks(soon, v.prefix)
	return o
}

// render renders the overview in parts that change independently.
func (o overview) render(rows []row, cache *parts) page {
	ids := make([]string, len(rows))
	all := map[string]template.HTML{"summary": render("summary", o), "trouble": render("trouble", o.Trouble), "empty": render("empty", o)}
	for i, one := range rows {
		ids[i] = one.ID()
		all[ids[i]] = cache.render(one.Name, "row", one.figures(), one.semaphore)
	}
	return page{all, map[string][]string{"rows": ids}}
}

// example returns a shell command that acquires a permit.
func example(r *http.Request, v Viewer, token bool) string {
	host := r.Host
	if strings.ContainsFunc(host, func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]", c)
	}) {
		host = "localhost" // a shell might interpret it
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
	o := d.feeds.reader.overview(r.Context(), what, every)
	if err := r.Context().Err(); err != nil {
		return err // the client has disconnected
	}
	b := d.border(v, "Semaphores")
	b.Live = what.Live()
	d.render(w, http.StatusOK, "overview", struct {
		border
		overview
	}{b, o})
	return nil
}
