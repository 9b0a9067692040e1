package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sema-go/sema/internal/filter"
)

// A query selects, orders and groups the semaphores of the overview.
type query struct {
	Filter string
	Sort   string // a key of orders; with a leading "-": in reverse
	From   int    // number of rows on previous pages
	Group  bool   // rows with the same prefix form a group
	Open   string // prefixes of the groups that are open, separated by spaces
}

// mostOpen bounds the length of the list of open groups, which is a part of URLs.
const mostOpen = 2000

func queryOf(r *http.Request) query {
	q := query{Filter: strings.TrimSpace(r.FormValue("q")), Sort: r.FormValue("sort"), Group: r.FormValue("group") != ""}
	if _, known := orders[strings.TrimPrefix(q.Sort, "-")]; !known {
		q.Sort = "problem"
	}
	if from, err := strconv.Atoi(r.FormValue("from")); err == nil && from > 0 {
		q.From = from - from%pageSize
	}
	if open := r.FormValue("open"); q.Group && len(open) <= mostOpen {
		q.Open = open
	}
	return q
}

// Sorted returns the URL of the overview in another order. The current order is reversed.
func (q query) Sorted(by string) string {
	if q.Sort == by {
		by = "-" + by
	}
	return query{Filter: q.Filter, Sort: by, Group: q.Group, Open: q.Open}.URL()
}

// Order returns the value of aria-sort of a column, "" if the rows are not ordered by it.
func (q query) Order(by string) string {
	ascending := by == "name"
	switch q.Sort {
	case by:
	case "-" + by:
		ascending = !ascending
	default:
		return ""
	}
	if ascending {
		return "ascending"
	}
	return "descending"
}

// Grouping returns the URL of the overview with groups, or without.
func (q query) Grouping() string {
	return query{Filter: q.Filter, Sort: q.Sort, Group: !q.Group}.URL()
}

// toggled returns the query with a group opened, or closed.
func (q query) toggled(prefix string) query {
	open := strings.Fields(q.Open)
	if i := slices.Index(open, prefix); i >= 0 {
		open = slices.Delete(open, i, i+1)
	} else {
		open = append(open, prefix)
	}
	q.Open = strings.Join(open, " ")
	return q
}

func (q query) at(from int) string {
	q.From = from
	return q.URL()
}

// URL returns the URL of the overview, and Live that of its stream.
func (q query) URL() string  { return "/ui/?" + q.encode() }
func (q query) Live() string { return "/ui/live?" + q.encode() }

func (q query) encode() string {
	values := url.Values{"q": {q.Filter}, "sort": {q.Sort}}
	if q.From > 0 {
		values.Set("from", strconv.Itoa(q.From))
	}
	if q.Group {
		values.Set("group", "1")
		if q.Open != "" {
			values.Set("open", q.Open)
		}
	}
	return values.Encode()
}

// Plain reports whether the filter is only a text that names contain.
func (q query) Plain() bool { return filter.Plain(q.Filter) }

// filterWords returns the words after "is:" that filters have, without one of them.
func filterWords(separator, without string) string {
	return strings.Join(slices.DeleteFunc(filter.Words(), func(word string) bool { return word == without }), separator)
}

// subject returns what filters compare.
func (r *row) subject() filter.Subject {
	return filter.Subject{
		Name: r.lower, Full: r.full(), Waiting: r.waiting > 0, Draining: r.Config.Draining, Paused: r.Config.Capacity == 0, Idle: r.InUse == 0 && r.waiting == 0,
		Rate: r.IsRate(), Declared: !r.Created, Problem: r.Problem != "", Wait: r.live.HeadAge, Held: r.live.OldestHold,
	}
}
