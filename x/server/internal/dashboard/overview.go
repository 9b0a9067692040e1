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

// pageSize is how many semaphores the overview shows.
const pageSize = 500

// A view is what a page shows: one semaphore, or some of all. What differs by viewer is in
// it, so that viewers of the same view can share a page.
type view struct {
	name      string // of the one semaphore
	after     string // the cursor of its page; "": the first one
	mayChange bool   // the one
	query
	prefix string // of all that may be seen
	try    string // a command to paste where there is nothing
}

func (d *Dashboard) overviewOf(r *http.Request, v Viewer) view {
	return view{query: queryOf(r), prefix: v.Prefix(), try: example(r, v, d.Login)}
}

func viewOf(r *http.Request, name string, v Viewer) view {
	return view{name: name, after: r.FormValue("after"), mayChange: v.MayChange(name)}
}

// A query selects which semaphores the overview shows, and in which order.
type query struct {
	Filter string
	Sort   string
	From   int // how many of them are on the pages before
}

// orders are those of the overview; "waiting" is the default.
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

// Sorted returns the address of the same in another order.
func (q query) Sorted(by string) string { return "/ui/?" + query{Filter: q.Filter, Sort: by}.encode() }

// Live returns the address of the stream.
func (q query) Live() string { return "/ui/live?" + q.encode() }

func (q query) encode() string {
	values := url.Values{"q": {q.Filter}, "sort": {q.Sort}}
	if q.From > 0 {
		values.Set("from", strconv.Itoa(q.From))
	}
	return values.Encode()
}

// matching returns the semaphores that fit and may be seen, by name.
func (v view) matching(rows []row) (all []row) {
	filter := strings.ToLower(v.Filter)
	for _, one := range rows {
		if strings.HasPrefix(one.Name, v.prefix) && strings.Contains(one.lower, filter) {
			all = append(all, one)
		}
	}
	return all
}

// A trouble says that what is shown may be outdated.
type trouble struct {
	Since time.Time // when the store last responded; zero if it does
	What  string    // that cannot be read
	Why   string
}

// troubleOf returns what a viewer reads of an error that occurred at a time.
func (r *reader) troubleOf(ctx context.Context, now time.Time, what string, err error) *trouble {
	t := &trouble{What: what, Why: err.Error()}
	t.Since, _ = r.outage(ctx, now, err)
	return t
}

// troubled returns all that changes of a page in an outage.
func troubled(t *trouble) page {
	return page{parts: map[string]template.HTML{"trouble": render("trouble", t)}}
}

// An overview is the page of all semaphores, or of those that match.
type overview struct {
	query
	page
	Waiting, Full   int64 // of all that match; semaphores without a free permit
	Shown, Matching int
	Trouble         *trouble
	Try             string
}

// First and Last return the places of the semaphores that are shown.
func (o overview) First() int { return o.From + 1 }
func (o overview) Last() int  { return o.From + o.Shown }

// Next and Previous return the addresses of other pages, "" if there are none.
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
			o.Trouble.Why = "the log of the server has more" // it may be about those of others
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
	o.From = min(o.From, max(0, o.Matching-1)/pageSize*pageSize) // some were deleted meanwhile
	rows = rows[o.From:min(o.From+pageSize, len(rows))]
	o.Shown = len(rows)
	o.page = o.render(rows, r.rendered)
	return o
}

// render returns the overview in parts that change on their own.
func (o overview) render(rows []row, cache *parts) page {
	ids := make([]string, len(rows))
	all := map[string]template.HTML{"summary": render("summary", o), "trouble": render("trouble", o.Trouble), "empty": render("empty", o)}
	for i, one := range rows {
		ids[i] = one.ID()
		all[ids[i]] = cache.render(one.Name, "row", one.figures(), one.semaphore)
	}
	return page{all, map[string][]string{"rows": ids}}
}

// example returns a command that acquires a permit, to paste into a shell.
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
		return err // the client has gone
	}
	b := d.border(v, "Semaphores")
	b.Live = what.Live()
	d.render(w, http.StatusOK, "overview", struct {
		border
		overview
	}{b, o})
	return nil
}
