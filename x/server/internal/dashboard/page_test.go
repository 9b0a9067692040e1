package dashboard

import (
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/history"
)

func shown(capacity, effective, inUse int64, waiting int, change func(*protocol.Config)) semaphore {
	s := protocol.Snapshot{Config: protocol.Config{Capacity: capacity, TTL: 15e6}, Effective: effective, InUse: inUse}
	s.Queue = make([]protocol.TicketInfo, waiting)
	if change != nil {
		change(&s.Config)
	}
	return newSemaphore("db", s, time.Time{})
}

func TestSemaphore_States(t *testing.T) {
	t.Parallel()
	drain := func(c *protocol.Config) { c.Draining = true }
	for _, c := range []struct {
		s      semaphore
		tone   string
		states []string
	}{
		{shown(4, 4, 1, 0, nil), "calm", nil},
		{shown(5, 5, 4, 0, nil), "tense", nil},
		{shown(4, 4, 4, 0, nil), "tense", []string{"full"}},
		{shown(4, 4, 4, 2, nil), "critical", []string{"full"}},
		{shown(4, 4, 3, 1, nil), "critical", nil}, // the first waiter wants more permits than are free
		{shown(2, 2, 5, 0, nil), "critical", []string{"over by 3"}},
		{shown(9, 4, 1, 0, nil), "calm", []string{"ramping to 9"}},
		{shown(0, 0, 0, 0, nil), "calm", []string{"paused"}},
		{shown(4, 4, 1, 0, drain), "calm", []string{"draining"}},
		{shown(4, 4, 0, 0, drain), "calm", []string{"drained"}},
	} {
		var states []string
		for _, one := range c.s.States() {
			states = append(states, one.Text)
		}
		if c.s.Tone() != c.tone || !slices.Equal(states, c.states) {
			t.Errorf("%+v: %s %v, want %s %v", c.s, c.s.Tone(), states, c.tone, c.states)
		}
	}
}

func TestSemaphore_Bar(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    semaphore
		want bar
	}{
		{shown(4, 4, 1, 0, nil), bar{"25.00%", "25.00%", "0.00%", "100.00%", "0.00%"}},
		{shown(2, 2, 4, 0, nil), bar{"50.00%", "50.00%", "50.00%", "100.00%", "0.00%"}},
		{shown(10, 5, 1, 0, nil), bar{"10.00%", "10.00%", "0.00%", "50.00%", "50.00%"}},
		{shown(0, 0, 0, 0, nil), bar{"0.00%", "0.00%", "0.00%", "0.00%", "0.00%"}},
	} {
		if got := c.s.Bar(); got != c.want {
			t.Errorf("%d of %d, %d in use: %+v, want %+v", c.s.Effective, c.s.Config.Capacity, c.s.InUse, got, c.want)
		}
	}
}

// TestHolder_Overdue checks that a holder is overdue after two thirds of the TTL without a
// heartbeat.
func TestHolder_Overdue(t *testing.T) {
	t.Parallel()
	now := time.UnixMicro(100e6)
	s := shown(4, 4, 2, 0, nil)
	s.now = now
	s.Sessions = []protocol.SessionInfo{{Session: 1, Client: protocol.Client{Instance: "quick"}, Renewed: 91e6}, {Session: 2, Client: protocol.Client{Instance: "silent"}, Renewed: 89e6}}
	s.Leases = []protocol.LeaseInfo{{Seq: 1, Session: 1, Weight: 1, Since: 40e6}, {Seq: 2, Session: 2, Weight: 1, Since: 50e6}}
	holders := s.holders(s.sessions(), false)
	if holders[0].Overdue || !holders[1].Overdue || holders[1].Left() != 4*time.Second || holders[0].Held != time.Minute {
		t.Errorf("%+v", holders)
	}
	s.now = now.Add(time.Second / 2)
	if !slices.Equal(holders, s.holders(s.sessions(), false)) {
		t.Error("holders that look the same are not equal")
	}
}

// TestSemaphore_KeepsOnlyListedEntries checks that only listed holders and waiters are kept, with
// their sessions.
func TestSemaphore_KeepsOnlyListedEntries(t *testing.T) {
	t.Parallel()
	const all = 1000
	var snapshot protocol.Snapshot
	for i := range all {
		session := protocol.Session(all - i) // in another order than the leases
		snapshot.Sessions = append(snapshot.Sessions, protocol.SessionInfo{Session: session, Client: protocol.Client{Instance: fmt.Sprint("instance ", session)}})
		snapshot.Leases = append(snapshot.Leases, protocol.LeaseInfo{Seq: protocol.Seq(i), Session: protocol.Session(i + 1)})
		snapshot.Queue = append(snapshot.Queue, protocol.TicketInfo{Session: protocol.Session(all - i)})
	}
	s := newSemaphore("db", snapshot, time.Now()).listed("")
	if len(s.Leases) != mostListed || len(s.Queue) != mostListed || len(s.Sessions) != 2*mostListed || cap(s.Leases) > 2*mostListed {
		t.Errorf("%d leases, %d queued, %d sessions are kept", len(s.Leases), len(s.Queue), len(s.Sessions))
	}
	if s.MoreHolders() != all-mostListed || s.MoreWaiters() != all-mostListed || s.Waiting() != all {
		t.Errorf("%d and %d more", s.MoreHolders(), s.MoreWaiters())
	}
	for i, h := range s.holders(s.sessions(), false) {
		if w := s.waiters(s.sessions())[i]; h.Instance != fmt.Sprint("instance ", i+1) || w.Instance != fmt.Sprint("instance ", all-i) {
			t.Fatalf("holder %d is %q, and %q waits", i, h.Instance, w.Instance)
		}
	}
}

// TestSemaphore_Pages checks that every holder and waiter is on a page, in order.
func TestSemaphore_Pages(t *testing.T) {
	t.Parallel()
	var stored protocol.Snapshot
	for i := range 450 {
		stored.Leases = append(stored.Leases, protocol.LeaseInfo{Seq: protocol.Seq(i + 1)})
	}
	for i := range 333 {
		stored.Queue = append(stored.Queue, protocol.TicketInfo{Session: 1, Ticket: protocol.Ticket(i + 1)})
	}
	held, places, pages := map[string]bool{}, map[int]bool{}, 0
	for after := ""; ; pages++ {
		s := newSemaphore("a b", stored, time.Now()).listed(after)
		for _, h := range s.holders(s.sessions(), false) {
			held[h.ID()] = true
		}
		for _, w := range s.waiters(s.sessions()) {
			if int(w.Ticket) != w.Place {
				t.Fatalf("page %d: waiter %d is at place %d", pages, w.Ticket, w.Place)
			}
			places[w.Place] = true
		}
		next, err := url.Parse(s.Next())
		if err != nil {
			t.Fatal(err)
		}
		if after = next.Query().Get("after"); after == "" {
			break
		}
	}
	if len(held) != 450 || len(places) != 333 || pages > 5 {
		t.Errorf("%d of 450 holders and %d of 333 waiters on %d pages", len(held), len(places), pages+1)
	}
	if s := newSemaphore("db", stored, time.Now()).listed("nonsense"); s.After() != "" || len(s.Leases) != mostListed {
		t.Error("an invalid cursor does not select the first page")
	}
}

// TestChart_Gaps checks that a curve has gaps for times without samples, and marks of events.
func TestChart_Gaps(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0).UTC()
	at := func(ago time.Duration, inUse int64) history.Point {
		return history.Point{At: now.Add(-ago), Sample: history.Sample{InUse: inUse, Effective: 4, WaitP99: time.Second}}
	}
	curve := history.Curve{Step: history.Fine, Points: []history.Point{at(14*time.Minute, 2), at(14*time.Minute-5*time.Second, 4), at(10*time.Second, 1), at(5*time.Second, 1), at(0, 1)}}
	events := []history.Event{{At: now.Add(-20 * time.Minute), Kind: "drain"}, {At: now.Add(-5 * time.Minute), Kind: "resize", By: "ops", Detail: "8"}}
	all := newCharts("/ui/semaphore?name=a", curve, events, now, 15*time.Minute)
	use := all.Curves[0]
	if strings.Count(use.Curve, "M") != 2 || strings.Count(use.Area, "Z") != 2 || use.Peak != "4" || use.Now != "1" || use.Top != "4" || strings.Count(use.Limit, "M") != 2 {
		t.Errorf("%+v", use)
	}
	if !strings.HasPrefix(use.Curve, "M36.7 50.0H40.0V0.0") {
		t.Errorf("curve %q", use.Curve)
	}
	if len(all.Events) != 1 || all.Events[0].Text != "resize by ops: 8" || all.Events[0].X != "396.7" || len(all.Ticks) != 5 || !all.Ranges[0].Current {
		t.Errorf("%+v", all)
	}
	if wait := all.Curves[2]; wait.Peak != "1s" || !strings.Contains(wait.Points, ":1s;") {
		t.Errorf("%+v", wait)
	}
	if none := newCharts("", history.Curve{}, nil, now, time.Hour).Curves[0]; none.Curve != "" || !strings.Contains(none.Text(), "no samples") {
		t.Errorf("%+v", none)
	}
}

// TestPage_Diff checks that only changes are sent.
func TestPage_Diff(t *testing.T) {
	t.Parallel()
	var s page
	type parts = map[string]template.HTML
	to := func(lists map[string][]string, p parts) change {
		c := s.diff(page{p, lists}, true)
		s = page{p, lists}
		return c
	}
	rows := func(ids ...string) map[string][]string { return map[string][]string{"rows": ids} }
	if c := to(rows("a", "b"), parts{"a": "1", "b": "1"}); len(c.Parts) != 2 || len(c.Lists) != 1 {
		t.Errorf("%+v", c)
	}
	if c := to(rows("a", "b"), parts{"a": "1", "b": "2"}); len(c.Parts) != 1 || c.Parts["b"] != "2" || len(c.Lists) != 0 {
		t.Errorf("%+v", c)
	}
	if c := to(rows("b"), parts{"b": "2"}); len(c.Parts) != 0 || !slices.Equal(c.Lists["rows"], []string{"b"}) {
		t.Errorf("%+v", c)
	}
	// A part that was removed is sent again when it returns.
	if c := to(rows("b", "a"), parts{"b": "2", "a": "1"}); c.Parts["a"] != "1" {
		t.Errorf("%+v", c)
	}
}

func TestText_Formats(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 300 * time.Millisecond: "300ms", 59 * time.Second: "59s", time.Minute: "1m", 200 * time.Second: "3m 20s", time.Hour: "1h",
		3900 * time.Second: "1h 5m", 50 * time.Hour: "2d 2h", -time.Second: "0s",
	} {
		if got := age(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := count(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	if got := rise(10, 3); got != 4*time.Second {
		t.Errorf("%v", got)
	}
}

// TestSemaphore_SpentRate checks what is shown of a rate without free permits: when it has the next
// one, if this server has granted all of them, and at the latest otherwise.
func TestSemaphore_SpentRate(t *testing.T) {
	t.Parallel()
	s := shown(6, 6, 6, 0, nil)
	s.Config.Kind, s.Config.Window = protocol.Rate, 3_000_000
	for _, c := range []struct {
		live Live
		want string
	}{
		{Live{Next: 320 * time.Millisecond, NextSpent: 6}, "spent, next in 0.3s"},
		{Live{Next: time.Millisecond, NextSpent: 6}, "spent, next in 0.1s"},
		{Live{Next: 2 * time.Second, NextSpent: 5}, "spent, next in 2.0s"},
		{Live{Next: 2 * time.Second, NextSpent: 4}, "spent, next within 2.0s"},
		{Live{Next: 61 * time.Second, NextSpent: 6}, "spent, next in 1m 1s"},
		{Live{}, "spent"},
	} {
		s.free = s.freeText(c.live)
		if all := s.States(); len(all) != 1 || all[0].Text != c.want || !strings.Contains(all[0].Why, "every 500ms") {
			t.Errorf("%+v: %+v, want %s", c.live, all, c.want)
		}
	}
	s.InUse = 5
	if got := s.freeText(Live{Next: time.Second, NextSpent: 6}); got != "" || len(s.States()) != 0 {
		t.Errorf("%q of a rate with a free permit", got)
	}
}
