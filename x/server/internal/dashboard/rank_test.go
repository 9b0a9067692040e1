package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// crowded returns an engine with 2,001 semaphores; 25 waiters are at the last one.
func crowded() *engine {
	e := newEngine()
	for i := range 2000 {
		e.all[fmt.Sprintf("a-%04d", i)] = protocol.Snapshot{Config: protocol.Config{Capacity: 4}, Effective: 4}
	}
	hot(e, 25)
	return e
}

// hot sets how many wait at the last semaphore.
func hot(e *engine, waiters int) {
	s := protocol.Snapshot{Config: protocol.Config{Capacity: 1}, Effective: 1, InUse: 1, Queue: make([]protocol.TicketInfo, waiters)}
	e.set(func() { e.all["zz-hot"] = s })
}

var byWaiting = view{query: query{Sort: "waiting"}}

// TestOverview_RanksOverAll: the semaphore with the most waiters is first, wherever its
// name is.
func TestOverview_RanksOverAll(t *testing.T) {
	e := crowded()
	e.takes = time.Millisecond
	watched(t, e, func(t *testing.T, w *watch) {
		l := w.asker.listing(t.Context(), byWaiting, every)
		if ids := l.lists["rows"]; len(ids) != most || ids[0] != "s:zz-hot" || l.Waiting != 25 || l.Full != 1 || l.Shown != most || l.Matching != 2001 {
			t.Errorf("%d rows, first %q, %+v", len(ids), ids[0], l.Totals)
		}
		if text := string(l.Part("summary")); !strings.Contains(text, "<b>25</b> waiting") || !strings.Contains(text, "The first 500 in this order are shown") {
			t.Error(text)
		}
		for sort, first := range map[string]string{"use": "s:zz-hot", "name": "s:a-0000"} {
			l := w.asker.listing(t.Context(), view{query: query{Sort: sort}}, every)
			if l.lists["rows"][0] != first || l.Waiting != 25 {
				t.Errorf("by %s: first %q, %+v", sort, l.lists["rows"][0], l.Totals)
			}
		}
	})
}

// TestOverview_RankIsLive: waiters that come later are seen soon, and each look at the
// engine is bounded, however many look on.
func TestOverview_RankIsLive(t *testing.T) {
	e := crowded()
	hot(e, 0)
	watched(t, e, func(t *testing.T, w *watch) {
		looker, leave := w.mustJoin(t, byWaiting)
		defer leave()
		for range 20 {
			_, gone := w.mustJoin(t, byWaiting)
			defer gone()
		}
		<-looker.news
		e.asked()
		hot(e, 25)
		for look := 1; ; look++ {
			f := <-looker.news
			lists, inspects := e.asked()
			if n := len(inspects); n > 2*most+atATime || lists > 1 || e.most > 2*atATime {
				t.Errorf("look %d: %d inspects, %d lists, %d at a time", look, n, lists, e.most)
			}
			if strings.Contains(string(f.Part("s:zz-hot")), "<b>25</b>") && f.lists["rows"][0] == "s:zz-hot" {
				break
			}
			if look > 5 {
				t.Fatalf("after %d looks it is not first", look)
			}
		}
	})
}

// TestOverview_OfASlowCrowd: a page does not wait until all are read; the next ones know
// more.
func TestOverview_OfASlowCrowd(t *testing.T) {
	e := crowded()
	e.takes = 20 * time.Millisecond // 400 a second
	watched(t, e, func(t *testing.T, w *watch) {
		start := time.Now()
		l := w.asker.listing(t.Context(), byWaiting, every)
		if took := time.Since(start); took > patience || l.Unknown == 0 || !strings.Contains(string(l.Part("summary")), "are not read yet") {
			t.Errorf("after %v %+v: %s", took, l.Totals, l.Part("summary"))
		}
		for l.Unknown > 0 {
			if time.Since(start) > 30*time.Second {
				t.Fatalf("after %v %+v", time.Since(start), l.Totals)
			}
			time.Sleep(every)
			l = w.asker.listing(t.Context(), byWaiting, every)
		}
		if first := l.lists["rows"][0]; first != "s:zz-hot" {
			t.Errorf("first %q", first)
		}
	})
}
