package dashboard

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/history"
)

// heldSince returns a semaphore with leases of clients that were granted some time ago.
func heldSince(now time.Time, leases ...protocol.LeaseInfo) semaphore {
	s := semaphore{Name: "db", now: now}
	s.Effective = 10
	for i, l := range leases {
		l.Seq, l.Weight = protocol.Seq(i+1), max(1, l.Weight)
		s.InUse += l.Weight
		s.Leases = append(s.Leases, l)
		s.Sessions = append(s.Sessions, protocol.SessionInfo{Session: l.Session, Client: protocol.Client{Instance: fmt.Sprintf("client-%d", l.Session)}})
	}
	return s
}

func leaseOf(session protocol.Session, weight int64, since time.Time) protocol.LeaseInfo {
	return protocol.LeaseInfo{Session: session, Weight: weight, Since: protocol.Micros(since.UnixMicro())}
}

// TestUsage_ReachesBeforeTheFirstView checks that the chart shows present leases since their grant,
// the rest of what the history knows as ended, and that later columns are complete.
func TestUsage_ReachesBeforeTheFirstView(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	past := func() history.Curve {
		return history.Curve{Step: history.Fine, Points: []history.Point{{At: now.Add(-12 * time.Minute), Sample: history.Sample{InUse: 7}}, {At: now.Add(-time.Minute), Sample: history.Sample{InUse: 5}}}}
	}
	var u usages
	s := heldSince(now, leaseOf(1, 3, now.Add(-2*time.Minute)), leaseOf(2, 1, now.Add(-time.Hour)))
	_, charts := u.update(now, s, past)
	if len(charts) != 1 || charts[0].By != "client" || charts[0].Top != "10" || len(charts[0].Bands) != 2 {
		t.Fatalf("%+v", charts)
	}
	values := map[string]string{}
	for _, band := range charts[0].Bands {
		values[band.Name] = band.Values
	}
	if got, want := values["client-1"], strings.Repeat("0,", 155)+strings.Repeat("3,", 24)+"3"; got != want {
		t.Errorf("client-1: %s", got)
	}
	if got, want := values["client-2"], strings.Repeat("1,", 179)+"1"; got != want {
		t.Errorf("client-2: %s", got)
	}
	// 12 minutes ago 7 were in use, of which one is held still; a minute ago 5 and 4.
	if got := charts[0].Ended; strings.Count(got, "z") != 2 || !strings.HasPrefix(got, "M116.7 90V30H120V90z") {
		t.Errorf("ended: %s", got)
	}

	// client-1 has released. It stays in the list, because it has held permits in the last minutes.
	asked := false
	later := now.Add(usageTick)
	holdings, charts := u.update(later, heldSince(later, leaseOf(2, 1, now.Add(-time.Hour))), func() history.Curve { asked = true; return past() })
	all := holdings[0].Segments
	if len(all) != 2 || all[0].Name != "client-2" || all[0].Permits != 1 || all[1].Name != "client-1" || all[1].Permits != 0 {
		t.Errorf("%+v", all)
	}
	if !asked || !strings.HasSuffix(charts[0].Bands[1].Values, ",3,3,0") {
		t.Errorf("%+v", charts)
	}
	if _, again := u.update(later.Add(time.Second), s, nil); &again[0] != &charts[0] {
		t.Error("a chart was drawn twice in a column")
	}
}

// TestUsage_IsBounded checks that neither many clients nor many semaphores take much memory, and that
// the permits of a column add up.
func TestUsage_IsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	var leases []protocol.LeaseInfo
	for i := range 1000 {
		leases = append(leases, leaseOf(protocol.Session(i+1), 1+int64(i%3), now.Add(-time.Duration(i)*time.Second)))
	}
	var u usages
	s := heldSince(now, leases...)
	none := func() history.Curve { return history.Curve{} }
	holdings, charts := u.update(now, s, none)
	one := u.all["db"]
	sum := int64(0)
	for _, n := range one.column(usageColumns - 1).held[0] {
		sum += n
	}
	if n := len(one.column(usageColumns - 1).held[0]); n != mostGroups+1 || sum != s.InUse {
		t.Errorf("%d groups with %d of %d permits", n, sum, s.InUse)
	}
	if n := len(holdings[0].Segments); n != mostSegments || holdings[0].Segments[n-1].Name != "994 others" || len(charts[0].Bands) != mostSegments {
		t.Errorf("%+v", holdings[0])
	}
	for i := range 3 * mostUsages {
		s.Name = fmt.Sprint("s-", i)
		u.update(now.Add(time.Duration(i)*time.Second), s, none)
	}
	if _, kept := u.all[s.Name]; len(u.all) != mostUsages || !kept {
		t.Errorf("%d semaphores are remembered", len(u.all))
	}
}

// TestTones_Stay checks that a group keeps its colour when the order of the groups changes, that no
// two groups have the same, and that nothing but the rest has the colour of the rest.
func TestTones_Stay(t *testing.T) {
	t.Parallel()
	var tones tones
	assigned := func(names ...string) map[string]int {
		var all []segment
		for _, name := range names {
			one := segment{Name: name}
			if strings.HasSuffix(name, "others") {
				one.Tone = restTone
			}
			all = append(all, one)
		}
		tones.assign(all)
		of, used := map[string]int{}, map[int]bool{}
		for _, one := range all {
			if used[one.Tone] {
				t.Errorf("%v: two with the colour %d", names, one.Tone)
			}
			of[one.Name], used[one.Tone] = one.Tone, true
		}
		return of
	}
	if got := assigned("a", "b", "c"); !maps.Equal(got, map[string]int{"a": 0, "b": 1, "c": 2}) {
		t.Error(got)
	}
	if got := assigned("c", "d", "b"); !maps.Equal(got, map[string]int{"c": 2, "d": 0, "b": 1}) {
		t.Error(got)
	}
	assigned("1", "2", "3", "4", "5", "6", "c")
	if got := assigned("c", "1", "2", "3", "4", "5", "2 others"); got["2 others"] != restTone || got["c"] != 2 {
		t.Error(got)
	}
}
