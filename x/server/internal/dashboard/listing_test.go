package dashboard

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/filter"
	"github.com/sema-go/sema/x/server/internal/history"
)

// listed returns a listing of rows with what is measured of them.
func listed(all map[protocol.Summary]Live) *listing {
	l := &listing{at: time.Unix(1_800_000_000, 0), sorted: map[string][]*row{}, selections: map[selectionKey]*selection{}}
	for s, live := range all {
		l.rows = append(l.rows, newRow(s, true, live, nil, l.at))
	}
	slices.SortFunc(l.rows, func(a, b *row) int { return strings.Compare(a.Name, b.Name) })
	return l
}

func summary(name string, capacity, inUse, waiting int64) protocol.Summary {
	return protocol.Summary{Name: name, Config: protocol.Config{Capacity: capacity}, Effective: capacity, InUse: inUse, Waiting: waiting}
}

func names(rows []*row) string {
	var all []string
	for _, r := range rows {
		all = append(all, r.Name)
	}
	return strings.Join(all, " ")
}

func example10() *listing {
	draining := summary("Db:drained", 4, 1, 0)
	draining.Config.Draining = true
	return listed(map[protocol.Summary]Live{
		summary("db:full", 4, 4, 0):  {Measured: true, Grants: 2},
		summary("db:queue", 4, 4, 9): {Measured: true, HeadAge: 12 * time.Second, WaitP99: time.Second, Grants: 7},
		summary("idle", 4, 0, 0):     {},
		summary("leak", 4, 1, 0):     {Measured: true, OldestHold: 15 * time.Minute, HoldP99: 4 * time.Second},
		summary("long", 4, 1, 0):     {Measured: true, OldestHold: 15 * time.Minute, HoldP99: 10 * time.Minute},
		draining:                     {},
	})
}

// TestListing_Orders checks every order, both ways, and that problems come first.
func TestListing_Orders(t *testing.T) {
	t.Parallel()
	l := example10()
	for order, want := range map[string]string{
		"problem":  "db:queue leak Db:drained db:full long idle",
		"-problem": "idle long db:full Db:drained leak db:queue",
		"name":     "Db:drained db:full db:queue idle leak long",
		"-name":    "long leak idle db:queue db:full Db:drained",
		"waiting":  "db:queue db:full Db:drained leak long idle",
		"use":      "db:queue db:full Db:drained leak long idle",
		"wait":     "db:queue Db:drained db:full idle leak long",
		"rate":     "db:queue db:full Db:drained idle leak long",
	} {
		if got := names(l.matching(view{query: query{Sort: order}}, nil)); got != want {
			t.Errorf("%s: %s, want %s", order, got, want)
		}
	}
	for name, want := range map[string]string{"db:queue": "9 waiting, head 12s", "leak": "held 15m, p99 is 4s", "long": "", "Db:drained": "1 permit still held"} {
		i := slices.IndexFunc(l.rows, func(r *row) bool { return r.Name == name })
		if got := l.rows[i].Problem; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestFilter_OfRows checks that filters compare what rows show, and that viewers with a prefix see no others.
func TestFilter_OfRows(t *testing.T) {
	t.Parallel()
	l := example10()
	paused, rate := summary("paused", 0, 0, 0), summary("rate", 3, 1, 0)
	rate.Config.Kind = protocol.Rate
	l.rows = append(l.rows, newRow(paused, true, Live{}, nil, l.at), newRow(rate, true, Live{}, nil, l.at), newRow(summary("unused", 3, 0, 0), false, Live{}, nil, l.at),
		newRow(summary("young", 3, 3, 1), true, Live{HeadAge: 350 * time.Millisecond}, nil, l.at))
	for text, want := range map[string]string{
		"":                "Db:drained db:full db:queue idle leak long paused rate unused young",
		"DB:":             "Db:drained db:full db:queue",
		"db is:full":      "db:full db:queue",
		"is:waiting":      "db:queue young",
		"is:draining":     "Db:drained",
		"is:idle":         "idle paused unused",
		"is:paused":       "paused",
		"is:rate":         "rate",
		"is:declared":     "unused",
		"is:problem":      "Db:drained db:queue leak",
		"wait>5s":         "db:queue",
		"wait<1s":         "young",
		"wait<13":         "db:queue young",
		"held>10m":        "leak long",
		"is:full wait>1h": "",
	} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := names(l.matching(view{query: query{Sort: "name"}}, f)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got := names(l.matching(view{query: query{Sort: "name"}, prefix: "l"}, nil)); got != "leak long" {
		t.Errorf("with a prefix: %s", got)
	}
}

// TestListing_SharesSelections checks that pages of a view share what it selects, that other views do
// not, and that viewers with many filters get the right rows without filling the memory.
func TestListing_SharesSelections(t *testing.T) {
	t.Parallel()
	l := example10()
	selected := func(v view) *selection {
		wanted, err := filter.Parse(v.Filter)
		if err != nil {
			t.Fatal(err)
		}
		return l.selected(v, wanted)
	}
	full := view{query: query{Sort: "name", Filter: "is:full"}}
	s := selected(full)
	if got := names(s.rows); got != "db:full db:queue" || s.Semaphores != 2 || s.Full != 2 || s.Waiting != 9 || s.Grants != 9 || s.Problems != 1 || s.WaitP99 != time.Second {
		t.Errorf("%s, %+v", got, s.totals)
	}
	second := full
	second.From, second.mayChange = pageSize, true
	if selected(second) != s {
		t.Error("another page of the same view selects again")
	}
	for _, other := range []view{
		{query: query{Sort: "-name", Filter: "is:full"}},
		{query: query{Sort: "name"}},
		{query: query{Sort: "name", Filter: "is:full", Group: true}},
		{query: query{Sort: "name", Filter: "is:full", Group: true, Open: "db:"}},
		{query: query{Sort: "name", Filter: "is:full"}, prefix: "db:q"},
	} {
		if got := selected(other); got == s || got != selected(other) {
			t.Errorf("%+v: a selection of another view, or none that is shared", other)
		}
	}
	if groups := selected(view{query: query{Sort: "name", Filter: "is:full", Group: true}}); groups.size() != 1 || groups.page(0)[0].group.Size != 2 {
		t.Errorf("groups: %d items", groups.size())
	}
	for i := range 2 * mostSelections {
		if got := names(selected(view{query: query{Sort: "name", Filter: fmt.Sprintf("leak held>%ds", i)}}).rows); got != "leak" {
			t.Errorf("filter %d: %s", i, got)
		}
	}
	if len(l.selections) != mostSelections {
		t.Errorf("%d selections are kept, want %d", len(l.selections), mostSelections)
	}
}

// TestListing_ProblemsLast checks that a short queue is no problem, and that one is a problem until
// it has ended, whether its age is measured or not.
func TestListing_ProblemsLast(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	var was *row
	for _, step := range []struct {
		after         time.Duration
		waiting       int64
		headAge       time.Duration
		problem       string
		rank, urgency int
	}{
		{0, 3, 400 * time.Millisecond, "", 0, 0},
		{time.Second, 3, 1900 * time.Millisecond, "", 0, 0},
		{2 * time.Second, 3, 2100 * time.Millisecond, "3 waiting, head 2s", 4, 4},
		{3 * time.Second, 0, 0, "", 0, 4},
		{8 * time.Second, 1, 100 * time.Millisecond, "", 0, 4},
		{12 * time.Second, 0, 0, "", 0, 4},
		{13 * time.Second, 0, 0, "", 0, 0},
		{20 * time.Second, 2, 0, "", 0, 0}, // clients of another server
		{21 * time.Second, 2, 0, "", 0, 0},
		{22 * time.Second, 2, 0, "2 waiting", 4, 4},
		{23 * time.Second, 0, 0, "", 0, 4},
		{24 * time.Second, 2, 5 * time.Second, "2 waiting, head 5s", 4, 4},
		{30 * time.Second, 0, 0, "", 0, 4}, // it has ended again
		{39 * time.Second, 0, 0, "", 0, 4},
		{40 * time.Second, 0, 0, "", 0, 0},
	} {
		was = newRow(summary("a", 4, 4, step.waiting), true, Live{Measured: true, HeadAge: step.headAge}, was, start.Add(step.after))
		if was.Problem != step.problem || was.rank != step.rank || was.urgency != step.urgency {
			t.Errorf("after %v: %q, rank %d, urgency %d, want %+v", step.after, was.Problem, was.rank, was.urgency, step)
		}
	}
}

// TestListing_QueuesOfThePast checks that a queue counts from the first read that has found it, and not
// from a read of long ago.
func TestListing_QueuesOfThePast(t *testing.T) {
	t.Parallel()
	r := newReader(nil, nil, nil)
	start := time.Unix(1_800_000_000, 0)
	var last *listing
	for _, step := range []struct {
		after   time.Duration
		problem string
	}{{0, ""}, {time.Second, ""}, {2 * time.Second, "1 waiting"}, {time.Hour, ""}, {time.Hour + time.Second, ""}, {time.Hour + 2*time.Second, "1 waiting"}} {
		last = r.newListing(last, []protocol.Summary{summary("a", 1, 1, 1)}, start.Add(step.after))
		if got := last.rows[0].Problem; got != step.problem {
			t.Errorf("after %v: %q, want %q", step.after, got, step.problem)
		}
	}
}

// TestListing_OrderIsSteady checks that rows do not change places with the load of every moment: only a
// new problem moves a row at once.
func TestListing_OrderIsSteady(t *testing.T) {
	t.Parallel()
	r := newReader(nil, nil, nil)
	start := time.Unix(1_800_000_000, 0)
	var last *listing
	order := func(after time.Duration, inUse map[string]int64, draining string) string {
		t.Helper()
		var all []protocol.Summary
		for _, name := range []string{"a", "b", "c", "d"} {
			s := summary(name, 10, inUse[name], 0)
			s.Config.Draining = name == draining
			if s.InUse > 0 || name != "d" {
				all = append(all, s)
			}
		}
		last = r.newListing(last, all, start.Add(after))
		return names(last.in("problem"))
	}
	for _, step := range []struct {
		after    time.Duration
		inUse    map[string]int64
		draining string
		want     string
	}{
		{0, map[string]int64{"a": 1, "b": 5, "c": 9}, "", "c b a"},
		{time.Second, map[string]int64{"a": 9, "b": 1, "c": 3}, "", "c b a"},
		{2 * time.Second, map[string]int64{"a": 9, "b": 1, "c": 3}, "b", "b c a"},
		{3 * time.Second, map[string]int64{"a": 9, "b": 1, "c": 3}, "", "b c a"},
		{9 * time.Second, map[string]int64{"a": 9, "b": 1, "c": 3, "d": 10}, "", "b c a d"},
		{10 * time.Second, map[string]int64{"a": 9, "b": 1, "c": 3, "d": 10}, "", "b d a c"},
		{13 * time.Second, map[string]int64{"a": 9, "b": 1, "c": 3, "d": 10}, "", "b d a c"},
		{20 * time.Second, map[string]int64{"a": 9, "b": 1, "c": 3, "d": 10}, "", "d a c b"},
	} {
		if got := order(step.after, step.inUse, step.draining); got != step.want {
			t.Errorf("after %v: %s, want %s", step.after, got, step.want)
		}
	}
	if got := names(last.in("-problem")); got != "b c a d" {
		t.Errorf("reversed: %s", got)
	}
	if got := names(last.in("use")); got != "d a c b" {
		t.Errorf("by use: %s", got)
	}
}

// TestListing_ReusesRows checks that a row that looks the same is not built again.
func TestListing_ReusesRows(t *testing.T) {
	t.Parallel()
	live := Live{Measured: true, HeadAge: 12*time.Second + 100*time.Millisecond}
	now := time.Unix(1_800_000_000, 0)
	was := newRow(summary("a", 4, 4, 1), true, live, nil, now)
	live.HeadAge += 100 * time.Millisecond
	if newRow(summary("a", 4, 4, 1), true, live, was, now.Add(time.Second)) != was {
		t.Error("an equal row was built again")
	}
	live.HeadAge += time.Second
	if one := newRow(summary("a", 4, 4, 1), true, live, was, now); one == was || !strings.Contains(one.Problem, "head 13s") {
		t.Error("a changed row was not built again")
	}
	if newRow(summary("a", 4, 3, 1), true, live, was, now).InUse != 3 {
		t.Error("a changed row was not built again")
	}
}

// TestGroups_CollectPrefixes checks that a group is at the place of its most urgent semaphore, has its
// sums, and opens.
func TestGroups_CollectPrefixes(t *testing.T) {
	t.Parallel()
	l := listed(map[protocol.Summary]Live{
		summary("a/1", 4, 1, 0): {}, summary("a/2", 4, 2, 0): {}, summary("b:1", 4, 4, 5): {HeadAge: 3 * time.Second, Measured: true, Grants: 2, WaitP99: time.Second},
		summary("b:2", 4, 0, 1): {HeadAge: 2 * time.Second, Measured: true, Grants: 1.5, WaitP99: 2 * time.Second}, summary("c/only", 4, 0, 0): {}, summary("d", 1, 0, 0): {},
	})
	shape := func(items []item) string {
		var all []string
		for _, one := range items {
			switch {
			case one.group != nil:
				all = append(all, one.group.Prefix+"*")
			case one.member:
				all = append(all, ">"+one.row.Name)
			default:
				all = append(all, one.row.Name)
			}
		}
		return strings.Join(all, " ")
	}
	q := query{Sort: "problem", Group: true}
	items := grouped(l.in(q.Sort), q)
	if got := shape(items); got != "b:* a/* c/only d" {
		t.Error(got)
	}
	if g := items[0].group; g.RateText() != "3.5" || g.WaitText() != "2s" || items[1].group.RateText() != "–" || items[1].group.WaitText() != "–" {
		t.Errorf("%s grants a second, waits of %s", g.RateText(), g.WaitText())
	}
	if g := items[0].group; g.InUse != 4 || g.Effective != 8 || g.Waiting != 6 || g.Size != 2 || g.Open || g.ProblemOf() != "b:1" || !strings.Contains(g.URL, "open=b%3A") {
		t.Errorf("%+v", g)
	}
	q = q.toggled("b:")
	if got := shape(grouped(l.in(q.Sort), q)); got != "b:* >b:1 >b:2 a/* c/only d" {
		t.Error(got)
	}
	if q.toggled("b:").Open != "" {
		t.Error("the group does not close")
	}
}

// TestHoldings_AddUp checks that the segments of a bar add up, and that the last one has the rest.
func TestHoldings_AddUp(t *testing.T) {
	t.Parallel()
	s := shown(40, 40, 30, 0, nil)
	for i := range 10 {
		id := protocol.Session(i + 1)
		s.Sessions = append(s.Sessions, protocol.SessionInfo{Session: id, Client: protocol.Client{Instance: "x", Host: "host", Process: int64(i + 1)}})
		s.Leases = append(s.Leases, protocol.LeaseInfo{Seq: protocol.Seq(i), Session: id, Weight: 3, Details: protocol.Details{Labels: []string{"job=a", "job=b"}[i%2]}})
	}
	all := s.holdings(nil)
	if len(all) != 2 || len(all[0].Segments) != mostSegments || len(all[1].Segments) != 2 {
		t.Fatalf("%+v", all)
	}
	for _, h := range all {
		var permits, leases int64
		for _, one := range h.Segments {
			permits, leases = permits+one.Permits, leases+one.Leases
		}
		if permits != 30 || leases != 10 {
			t.Errorf("by %s: %d permits in %d leases", h.By, permits, leases)
		}
	}
	if rest := all[0].Segments[mostSegments-1]; rest.Name != "4 others" || rest.Permits != 12 || rest.X != "45.00%" || rest.Width != "30.00%" {
		t.Errorf("%+v", rest)
	}
}

// TestSparkline_Shape checks the path of a sparkline, which is empty if nothing was used.
func TestSparkline_Shape(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_005, 0)
	at := func(ago time.Duration, inUse int64) history.Point {
		return history.Point{At: now.Add(-ago), Sample: history.Sample{InUse: inUse, Effective: 4}}
	}
	if got := sparkline(history.Curve{Points: []history.Point{at(25*time.Second, 4), at(15*time.Second, 2), at(0, 2)}}, now); got != "M57 16V0H58V8H60V16Z" {
		t.Error(got)
	}
	if got := sparkline(history.Curve{Points: []history.Point{at(time.Second, 0)}}, now); got != "" {
		t.Errorf("%q of no use", got)
	}
}

// TestCommands_AreQuoted checks that a shell runs the commands with the name, whatever it contains.
func TestCommands_AreQuoted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"db/main": "db/main", "a b": "'a b'", "$(x)": "'$(x)'", "it's": `'it'\''s'`, "-x": "'-x'", "": "''"} {
		if got := quoted(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestCommands_Run checks the scheme of the store, a name that looks like a flag, and that drain returns at
// once, as the button does.
func TestCommands_Run(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want        action
		proto, line string
	}{
		{action{name: "db/main", verb: "drain"}, "http", "sema drain db/main --wait 0 --store sema://sema.example.com"},
		{action{name: "db", verb: "resume"}, "https", "sema resume db --store semas://sema.example.com"},
		{action{name: "-x", verb: "resize", capacity: 3, ramp: 1}, "http", "sema set --capacity 3 --ramp 1 --store sema://sema.example.com -- '-x'"},
		{action{name: "-x", verb: "revoke", lease: 7}, "https", "sema revoke --store semas://sema.example.com -- '-x' 7"},
		{action{name: "db", verb: "revoke-all", leases: []protocol.Seq{7, 8}}, "http", "for lease in 7 8; do sema revoke db $lease --store sema://sema.example.com; done"},
		{action{name: "it's", verb: "delete"}, "http", `sema rm 'it'\''s' --store sema://sema.example.com`},
	} {
		r := httptest.NewRequest("GET", "http://sema.example.com/ui/confirm", nil)
		r.Header.Set("X-Forwarded-Proto", c.proto)
		if got := commandsOf(r, c.want, false)[0]; got.Name != "CLI" || got.Line != c.line {
			t.Errorf("%+v:\n%s\n%s", c.want, got.Line, c.line)
		}
	}
}
