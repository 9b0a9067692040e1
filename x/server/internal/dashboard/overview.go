package dashboard

import (
	"context"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sema-go/sema/internal/filter"
)

// pageSize is the number of semaphores per page of the overview.
const pageSize = 500

// A view identifies what a page shows: one semaphore, or the overview. It includes everything
// that differs between viewers, so that viewers of the same view can share a page.
type view struct {
	name      string        // of one semaphore; "": the overview
	after     string        // cursor of the semaphore's page; "": first page
	mayChange bool          // the viewer may change the semaphore, or create some
	span      time.Duration // time range of the charts; 0: the default
	query
	prefix string // of the names that the viewer may see
	try    string // example command for an empty overview
}

func (d *Dashboard) overviewOf(r *http.Request, v Viewer) view {
	return view{query: queryOf(r), prefix: v.Prefix(), mayChange: v.MayChange(v.Prefix()), try: example(r, v, d.Login)}
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
	totals
	Latency         time.Duration // of the store; 0: unknown
	Shown, Matching int           // rows, including those of groups
	Bad             string        // why the filter is not valid; "": it is
	Trouble         *trouble
	Try             string
	MayCreate       bool
}

// First and Last return the positions of the first and last row shown.
func (o overview) First() int { return o.From + 1 }
func (o overview) Last() int  { return o.From + o.Shown }

// Next and Previous return the URLs of the adjacent pages, "" if there is none.
func (o overview) Next() string {
	if o.Last() >= o.Matching {
		return ""
	}
	return o.at(o.From + pageSize)
}

func (o overview) Previous() string {
	if o.From == 0 {
		return ""
	}
	return o.at(o.From - pageSize)
}

func (r *reader) overview(ctx context.Context, v view, within time.Duration) overview {
	start := time.Now()
	soon, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o := overview{query: v.query, Try: v.try, MayCreate: v.mayChange}
	clock := r.ping()
	all, err := r.list(soon, within)
	if err != nil {
		o.Trouble = r.troubleOf(ctx, start, "The semaphores cannot be listed", err)
		if v.prefix != "" {
			o.Trouble.Why = "the server's log has the cause" // the error may name semaphores that the viewer may not see
		}
	}
	if clock.complete() && clock.err == nil {
		o.Latency = clock.value.took
	}
	chosen := &selection{}
	if wanted, err := filter.Parse(v.Filter); err != nil {
		o.Bad = err.Error()
	} else if all != nil {
		chosen = all.selected(v, wanted)
	}
	o.totals, o.Matching = chosen.totals, chosen.size()
	o.From = min(o.From, max(0, o.Matching-1)/pageSize*pageSize) // some may have been deleted in the meantime
	items := chosen.page(o.From)
	o.Shown = len(items)
	o.page = o.render(items, r, start)
	o.page.parts["deadlocks"] = render("deadlocks", []string(nil))
	if all != nil && all.waiting { // otherwise there is no deadlock, and nothing to read for it
		o.page.parts["deadlocks"] = r.deadlocks(soon, v.prefix)
	}
	return o
}

// render renders the overview in parts that change independently.
func (o overview) render(items []item, r *reader, now time.Time) page {
	ids := make([]string, len(items))
	all := map[string]template.HTML{"summary": render("summary", o), "trouble": render("trouble", o.Trouble), "empty": render("empty", o), "paging": render("paging", o)}
	for i, one := range items {
		if one.group != nil {
			ids[i] = one.group.ID()
			all[ids[i]] = r.rendered.render("{"+one.group.Prefix, "group", *one.group, one.group) // no name contains a brace
			continue
		}
		ids[i] = one.row.ID()
		of := one.row.shown
		of.spark, of.member = r.sparks.of(r.measures, one.row.Name, one.row.live.Measured, now), one.member
		all[ids[i]] = r.rendered.render(one.row.Name, "row", of, struct {
			*row
			Spark  string
			Member bool
		}{one.row, of.spark, one.member})
	}
	return page{all, map[string][]string{"rows": ids}}
}

// example returns a shell command that acquires a permit.
func example(r *http.Request, v Viewer, token bool) string {
	line := "curl -X POST "
	if token {
		line += `-H "Authorization: Bearer $SEMA_TOKEN" `
	}
	name := strings.ReplaceAll(url.PathEscape(v.Prefix()+"demo"), "'", "%27")
	return line + "'" + scheme(r) + "://" + safeHost(r) + "/v1/semaphores/" + name + "/leases?capacity=3'"
}

func (d *Dashboard) overview(w http.ResponseWriter, r *http.Request, v Viewer) error {
	what := d.overviewOf(r, v)
	o := d.feeds.reader.overview(r.Context(), what, every)
	if err := r.Context().Err(); err != nil {
		return err // the client has disconnected
	}
	b := d.border(v, "Semaphores")
	b.Place = "semaphores"
	b.Live = what.Live()
	d.render(w, http.StatusOK, "overview", struct {
		border
		overview
	}{b, o})
	return nil
}
