package dashboard

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

// largeStore returns a store with 2,001 semaphores; 25 waiters are at the last one.
func largeStore() *fakeStore {
	e := newStore()
	for i := range 2000 {
		e.all[fmt.Sprintf("a-%04d", i)] = protocol.Snapshot{Config: protocol.Config{Capacity: 4}, Effective: 4}
	}
	hot(e, 25)
	return e
}

// hot sets the number of waiters of the last semaphore.
func hot(e *fakeStore, waiters int) {
	s := protocol.Snapshot{Config: protocol.Config{Capacity: 1}, Effective: 1, InUse: 1, Queue: make([]protocol.TicketInfo, waiters)}
	e.set(func() { e.all["zz-hot"] = s })
}

var byWaiting = view{query: query{Sort: "waiting"}}

// TestOverview_RanksOverAll checks that the semaphore with the most waiters is first, wherever its
// name sorts, and that one query per 1,000 semaphores is enough.
func TestOverview_RanksOverAll(t *testing.T) {
	e := largeStore()
	watched(t, e, func(t *testing.T, w *feeds) {
		o := w.reader.overview(t.Context(), byWaiting, every)
		if ids := o.lists["rows"]; len(ids) != pageSize || ids[0] != "s:zz-hot" || o.Waiting != 25 || o.Full != 1 || o.Shown != pageSize || o.Matching != 2001 {
			t.Errorf("%d rows, first %q, %d waiting, %d full", len(ids), ids[0], o.Waiting, o.Full)
		}
		if text := string(o.Part("summary")); !strings.Contains(text, "<b>25</b> waiting") || !strings.Contains(text, "Showing 1 to 500 of 2,001 in this order") {
			t.Error(text)
		}
		for sort, first := range map[string]string{"use": "s:zz-hot", "name": "s:a-0000"} {
			o := w.reader.overview(t.Context(), view{query: query{Sort: sort}}, every)
			if o.lists["rows"][0] != first || o.Waiting != 25 {
				t.Errorf("by %s: first %q, %d waiting", sort, o.lists["rows"][0], o.Waiting)
			}
		}
		if lists, inspects := e.asked(); lists != 3 || len(inspects) != 0 {
			t.Errorf("%d lists and %d inspects", lists, len(inspects))
		}
	})
}

// TestOverview_Pages checks that every semaphore is on one page.
func TestOverview_Pages(t *testing.T) {
	e := largeStore()
	watched(t, e, func(t *testing.T, w *feeds) {
		for _, sort := range []string{"waiting", "use", "name"} {
			shown, pages := map[string]bool{}, 0
			for at := "/ui/?sort=" + sort; at != ""; pages++ {
				o := w.reader.overview(t.Context(), view{query: queryOf(httptest.NewRequest("GET", at, nil))}, every)
				for _, id := range o.lists["rows"] {
					shown[id] = true
				}
				if (pages == 0) != (o.Previous() == "") || pages > 5 {
					t.Fatalf("page %d: previous %q", pages, o.Previous())
				}
				at = o.Next()
			}
			if len(shown) != 2001 || pages != 5 {
				t.Errorf("by %s: %d of 2001 on %d pages", sort, len(shown), pages)
			}
		}
		o := w.reader.overview(t.Context(), view{query: queryOf(httptest.NewRequest("GET", "/ui/?from=99999", nil))}, every)
		if o.Shown != 1 || o.Next() != "" {
			t.Errorf("after the last page: %d are shown", o.Shown)
		}
	})
}

// TestOverview_RankIsLive checks that a change is shown with the next read.
func TestOverview_RankIsLive(t *testing.T) {
	e := largeStore()
	hot(e, 0)
	watched(t, e, func(t *testing.T, w *feeds) {
		subscriber, leave := w.mustJoin(t, byWaiting)
		defer leave()
		<-subscriber.updates
		hot(e, 25)
		if f := <-subscriber.updates; !strings.Contains(string(f.Part("s:zz-hot")), "<b>25</b>") || f.lists["rows"][0] != "s:zz-hot" {
			t.Errorf("first %q: %s", f.lists["rows"][0], f.Part("s:zz-hot"))
		}
	})
}
