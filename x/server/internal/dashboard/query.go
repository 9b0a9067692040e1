package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
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
func (q query) Plain() bool {
	terms := strings.Fields(q.Filter)
	return len(terms) == 1 && !isCondition(strings.ToLower(terms[0]))
}

// A filter reports whether rows match. All its terms must match.
type filter []func(*row) bool

func (f filter) matches(one *row) bool {
	for _, term := range f {
		if !term(one) {
			return false
		}
	}
	return true
}

// conditions are the words after "is:".
var conditions = map[string]func(*row) bool{
	"full":     func(r *row) bool { return r.full() },
	"waiting":  func(r *row) bool { return r.waiting > 0 },
	"draining": func(r *row) bool { return r.Config.Draining },
	"paused":   func(r *row) bool { return r.Config.Capacity == 0 },
	"idle":     func(r *row) bool { return r.InUse == 0 && r.waiting == 0 },
	"rate":     func(r *row) bool { return r.IsRate() },
	"problem":  func(r *row) bool { return r.Problem != "" },
}

// ages are the words before ">" and "<".
var ages = map[string]func(*row) time.Duration{
	"wait": func(r *row) time.Duration { return r.live.HeadAge },
	"held": func(r *row) time.Duration { return r.live.OldestHold },
}

// isCondition reports whether a term is more than a text.
func isCondition(term string) bool {
	if strings.HasPrefix(term, "is:") {
		return true
	}
	at := strings.IndexAny(term, "<>")
	if at <= 0 {
		return false
	}
	_, err := limitOf(term[at+1:])
	return ages[term[:at]] != nil || err == nil
}

// limitOf parses a duration. A number is in seconds.
func limitOf(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, nil
	}
	return time.ParseDuration(text)
}

// parseFilter parses a filter such as "db is:full wait>5s". Other words are parts of names.
func parseFilter(text string) (all filter, err error) {
	for _, term := range strings.Fields(strings.ToLower(text)) {
		one := func(r *row) bool { return strings.Contains(r.lower, term) }
		if isCondition(term) {
			if one, err = parseCondition(term); err != nil {
				return nil, err
			}
		}
		all = append(all, one)
	}
	return all, nil
}

func parseCondition(term string) (func(*row) bool, error) {
	if word, ok := strings.CutPrefix(term, "is:"); ok {
		if is := conditions[word]; is != nil {
			return is, nil
		}
		return nil, fmt.Errorf("%q is not a filter: use is:full, is:waiting, is:draining, is:paused, is:idle, is:rate or is:problem", term)
	}
	at := strings.IndexAny(term, "<>")
	age, over := ages[term[:at]], term[at] == '>'
	if age == nil {
		return nil, fmt.Errorf("%q is not a filter: wait and held can be compared, such as wait>5s or held>10m", term)
	}
	limit, err := limitOf(term[at+1:])
	if err != nil || limit < 0 {
		return nil, fmt.Errorf("%q is not a filter: %s needs a duration, such as %s5s or %s10m", term, term[:at+1], term[:at+1], term[:at+1])
	}
	return func(r *row) bool {
		if over {
			return age(r) > limit
		}
		return age(r) > 0 && age(r) < limit
	}, nil
}
