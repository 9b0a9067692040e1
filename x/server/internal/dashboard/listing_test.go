package dashboard

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/history"
)

// listed returns a listing of rows with what is measured of them.
func listed(all map[protocol.Summary]Live) *listing {
	l := &listing{sorted: map[string][]*row{}}
	for s, live := range all {
		l.rows = append(l.rows, newRow(s, true, live, nil))
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

// TestFilter_Terms checks the terms of the filter, and that bad ones are explained.
func TestFilter_Terms(t *testing.T) {
	t.Parallel()
	l := example10()
	for text, want := range map[string]string{
		"":                "Db:drained db:full db:queue idle leak long",
		"DB:":             "Db:drained db:full db:queue",
		"db is:full":      "db:full db:queue",
		"is:waiting":      "db:queue",
		"is:draining":     "Db:drained",
		"is:idle":         "idle",
		"is:problem":      "Db:drained db:queue leak",
		"wait>5s":         "db:queue",
		"wait>12":         "",
		"wait<13":         "db:queue",
		"held>10m":        "leak long",
		"held>10m p99":    "",
		"is:full wait>1h": "",
	} {
		f, err := parseFilter(text)
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
	for _, bad := range []string{"is:bad", "wait>", "wait>soon", "held<-1s", "is:", "age>5s", "waiting>3"} {
		if _, err := parseFilter(bad); err == nil || !strings.Contains(err.Error(), "is not a filter") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestListing_ReusesRows checks that a row that looks the same is not built again.
func TestListing_ReusesRows(t *testing.T) {
	t.Parallel()
	live := Live{Measured: true, HeadAge: 12*time.Second + 100*time.Millisecond}
	was := newRow(summary("a", 4, 4, 1), true, live, nil)
	live.HeadAge += 100 * time.Millisecond
	if newRow(summary("a", 4, 4, 1), true, live, was) != was {
		t.Error("an equal row was built again")
	}
	live.HeadAge += time.Second
	if now := newRow(summary("a", 4, 4, 1), true, live, was); now == was || !strings.Contains(now.Problem, "head 13s") {
		t.Error("a changed row was not built again")
	}
	if newRow(summary("a", 4, 3, 1), true, live, was).InUse != 3 {
		t.Error("a changed row was not built again")
	}
}

// TestGroups_CollectPrefixes checks that a group is at the place of its most urgent semaphore, has its
// sums, and opens.
func TestGroups_CollectPrefixes(t *testing.T) {
	t.Parallel()
	l := listed(map[protocol.Summary]Live{
		summary("a/1", 4, 1, 0): {}, summary("a/2", 4, 2, 0): {}, summary("b:1", 4, 4, 5): {}, summary("b:2", 4, 0, 1): {}, summary("c/only", 4, 0, 0): {}, summary("d", 1, 0, 0): {},
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
