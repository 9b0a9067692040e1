package dashboard

import (
	"cmp"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A query is which semaphores the overview shows, and in which order.
type query struct {
	Filter string
	Sort   string
}

// orders are those that there are. What people wait for comes first unless told.
var orders = map[string]func(a, b semaphore) int{
	"waiting": func(a, b semaphore) int {
		return cmp.Or(cmp.Compare(b.Waiting(), a.Waiting()), cmp.Compare(b.use(), a.use()))
	},
	"use": func(a, b semaphore) int {
		return cmp.Or(cmp.Compare(b.use(), a.use()), cmp.Compare(b.Waiting(), a.Waiting()))
	},
	"name": func(semaphore, semaphore) int { return 0 },
}

func queryOf(r *http.Request) query {
	q := query{Filter: strings.TrimSpace(r.FormValue("q")), Sort: r.FormValue("sort")}
	if orders[q.Sort] == nil {
		q.Sort = "waiting"
	}
	return q
}

// Sorted is the address of the same in another order.
func (q query) Sorted(by string) string { return "/ui/?" + query{q.Filter, by}.encode() }

// Live is the address of the stream.
func (q query) Live() string { return "/ui/live?" + q.encode() }

func (q query) encode() string { return url.Values{"q": {q.Filter}, "sort": {q.Sort}}.Encode() }

// matching are the names that fit and may be seen, in order.
func (q query) matching(v Viewer, names []string) (all []string) {
	filter := strings.ToLower(q.Filter)
	for _, name := range names {
		if v.MaySee(name) && strings.Contains(strings.ToLower(name), filter) {
			all = append(all, name)
		}
	}
	return all
}

func (q query) wish(v Viewer) wish {
	return wish{some: func(names []string) []string {
		all := q.matching(v, names)
		return all[:min(len(all), most)]
	}}
}

// A listing is what the overview shows.
type listing struct {
	query
	Rows          []semaphore
	Matching      int // of which as many as Rows are shown
	Full, Waiting int64
	Trouble       *trouble
	Try           string // a line to paste
}

// A trouble is that the engine does not answer.
type trouble struct {
	Since time.Time
	Why   string
}

func (d *Dashboard) listing(r *http.Request, v Viewer, q query, s *sight) listing {
	l := listing{query: q, Trouble: troubleOf(s), Try: example(r, v, d.Login)}
	names := q.matching(v, s.names)
	l.Matching = len(names)
	for _, name := range names[:min(len(names), most)] {
		one, ok := s.semaphore(name)
		if !ok {
			continue // meanwhile
		}
		l.Rows = append(l.Rows, one)
		l.Waiting += one.Waiting()
		if one.Failure == "" && one.use() >= 1 {
			l.Full++
		}
	}
	slices.SortStableFunc(l.Rows, orders[q.Sort])
	return l
}

// semaphore is one as it was seen, if it was there.
func (s *sight) semaphore(name string) (one semaphore, ok bool) {
	if err := s.failed[name]; err != nil {
		return semaphore{Name: name, Failure: err.Error()}, true
	}
	snapshot, ok := s.seen[name]
	return semaphore{Snapshot: snapshot, Name: name, now: s.now}, ok
}

func troubleOf(s *sight) *trouble {
	if s.err == nil {
		return nil
	}
	return &trouble{s.failing, s.err.Error()}
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
	q := queryOf(r)
	f := d.frame(v, "Semaphores")
	f.Live = q.Live()
	d.render(w, http.StatusOK, "overview", struct {
		frame
		listing
	}{f, d.listing(r, v, q, d.watch.look(r.Context(), q.wish(v)))})
	return nil
}

// scene is the overview in parts that change on their own.
func (l listing) scene() scene {
	s := scene{lists: map[string][]string{"rows": {}}}
	s.add("summary", "summary", l)
	s.add("trouble", "trouble", l.Trouble)
	s.add("empty", "empty", l)
	for _, row := range l.Rows {
		s.add(row.ID(), "row", row)
		s.lists["rows"] = append(s.lists["rows"], row.ID())
	}
	return s
}

// A portrait is what the page of one semaphore shows.
type portrait struct {
	semaphore
	Gone      bool
	MayChange bool
	Holders   []holder
	Waiters   []waiter
	Charts    []chart
	Trouble   *trouble
}

func (p portrait) MoreHolders() int { return len(p.Leases) - len(p.Holders) }
func (p portrait) MoreWaiters() int { return len(p.Line) - len(p.Waiters) }

func (d *Dashboard) portrait(v Viewer, name string, s *sight) portrait {
	one, ok := s.semaphore(name)
	one.Name = name
	p := portrait{semaphore: one, Gone: !ok, MayChange: v.MayChange(name), Trouble: troubleOf(s)}
	if ok {
		p.Holders, p.Waiters = one.holders(one.Leases[:min(len(one.Leases), mostListed)], p.MayChange), one.waiters()
		p.Charts = chartsOf(d.watch.trailOf(name), s.at)
	}
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
	p := d.portrait(v, name, d.watch.look(r.Context(), wish{one: name}))
	f := d.frame(v, name)
	template := "semaphore"
	switch {
	case p.Trouble != nil:
		template, status = "blank", http.StatusServiceUnavailable
	case p.Gone && done == nil:
		return fs.ErrNotExist
	case p.Gone:
		template = "after"
	}
	if template != "after" {
		f.Live = "/ui/live?" + url.Values{"name": {name}}.Encode()
	}
	d.render(w, status, template, struct {
		frame
		portrait
		Outcome *outcome
	}{f, p, done})
	return nil
}

// scene is the page in parts that change on their own. What is not known stays as it
// was, and the first part says why.
func (p portrait) scene() (s scene) {
	s.add("trouble", "trouble", p.Trouble)
	s.add("state", "state", p)
	if p.Failure != "" {
		return s
	}
	s.lists = map[string][]string{"holders": {}, "line": {}}
	if p.Gone {
		return s
	}
	s.add("charts", "charts", p)
	s.add("settings", "settings", p)
	s.add("holders-note", "holders-note", p)
	s.add("line-note", "line-note", p)
	if p.MayChange {
		s.add("verbs", "verbs", p)
	}
	for _, h := range p.Holders {
		s.add(h.ID(), "holder", h)
		s.lists["holders"] = append(s.lists["holders"], h.ID())
	}
	for _, one := range p.Waiters {
		s.add(one.ID(), "waiter", one)
		s.lists["line"] = append(s.lists["line"], one.ID())
	}
	return s
}
