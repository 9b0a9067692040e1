package dashboard

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A fakeStore counts its reads.
type fakeStore struct {
	mu           sync.Mutex
	all          map[string]protocol.Snapshot
	broken       map[string]error // semaphores that cannot be read
	lists        int
	inspects     map[string]int
	asking, most int // concurrent Inspects; the most so far
	takes        time.Duration
	down         error
}

func newStore(names ...string) *fakeStore {
	e := &fakeStore{all: map[string]protocol.Snapshot{}, inspects: map[string]int{}, broken: map[string]error{}}
	for _, name := range names {
		e.all[name] = protocol.Snapshot{Config: protocol.Config{Capacity: 4}, Effective: 4, InUse: 1}
	}
	return e
}

func services(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("service-%03d", i))
	}
	return names
}

func (e *fakeStore) List(ctx context.Context, q protocol.ListQuery) (page []protocol.Summary, err error) {
	if e.takes > 0 { // timers without a delay trip the race detector in a bubble
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(e.takes):
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lists++
	for _, name := range slices.Sorted(maps.Keys(e.all)) {
		if name > q.After && len(page) < q.Most() {
			page = append(page, e.all[name].Summary(name))
		}
	}
	return page, e.down
}

func (e *fakeStore) Recent(ctx context.Context, name string) (protocol.Snapshot, error) {
	return e.Inspect(ctx, name)
}

func (e *fakeStore) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	e.set(func() { e.asking++; e.most = max(e.most, e.asking) })
	defer e.set(func() { e.asking-- })
	if e.takes > 0 { // timers without a delay trip the race detector in a bubble
		select {
		case <-ctx.Done():
			return protocol.Snapshot{}, ctx.Err()
		case <-time.After(e.takes):
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inspects[name]++
	s, ok := e.all[name]
	switch {
	case e.down != nil:
		return s, e.down
	case !ok:
		return s, fs.ErrNotExist
	}
	return s, e.broken[name]
}

func (e *fakeStore) Ping(context.Context) (time.Time, error) {
	return time.Time{}, errors.ErrUnsupported
}

func (e *fakeStore) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

// asked returns the numbers of reads since the last call.
func (e *fakeStore) asked() (lists int, inspects map[string]int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	lists, inspects = e.lists, e.inspects
	e.lists, e.inspects = 0, map[string]int{}
	return lists, inspects
}

// watched runs a test with feeds, which are closed when it ends.
func watched(t *testing.T, e *fakeStore, test func(t *testing.T, w *feeds)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFeeds(e, nil, func(error) {})
		defer w.close()
		test(t, w)
	})
}

func (f *feeds) mustJoin(t *testing.T, v view) (*subscriber, func()) {
	t.Helper()
	l, leave, err := f.join(v)
	if err != nil {
		t.Fatal(err)
	}
	return l, leave
}

var everything = view{query: query{Sort: "name"}}

// TestFeeds_ShareReads checks that the store is read once a second for any number of viewers, and
// not at all without viewers.
func TestFeeds_ShareReads(t *testing.T) {
	e := newStore("a", "b", "c")
	watched(t, e, func(t *testing.T, w *feeds) {
		var leave []func()
		var subscribers []*subscriber
		join := func(v view) {
			l, gone := w.mustJoin(t, v)
			leave, subscribers = append(leave, gone), append(subscribers, l)
		}
		for i := range 50 {
			v := everything
			v.Filter = []string{"", "a", "b"}[i%3]
			join(v)
			join(view{name: "a", mayChange: i%2 == 0})
			join(view{name: "b", mayChange: i > 10})
			time.Sleep(every / 20) // they join at different times
		}
		time.Sleep(3 * every)
		e.asked()
		const seconds = 10
		time.Sleep(seconds * every)
		if lists, inspects := e.asked(); lists != seconds || inspects["a"] != seconds || inspects["b"] != seconds || len(inspects) != 2 {
			t.Errorf("in %d seconds: %d lists, %v", seconds, lists, inspects)
		}
		for i, l := range subscribers {
			if f := <-l.updates; !f.live || i%3 == 0 && len(f.lists["rows"]) == 0 || i%3 == 1 && f.parts["state"] == "" {
				t.Errorf("subscriber %d sees %v", i, f.page)
			}
		}
		for i := range 150 {
			if i != 1 {
				leave[i]()
			}
		}
		time.Sleep(every) // one read may be in progress
		e.asked()
		time.Sleep(seconds * every)
		if lists, inspects := e.asked(); lists != 0 || inspects["a"] != seconds || len(inspects) != 1 {
			t.Errorf("with one semaphore's page open: %d lists, %v", lists, inspects)
		}
		leave[1]()
		time.Sleep(2 * every)
		e.asked()
		time.Sleep(time.Minute)
		if lists, inspects := e.asked(); lists != 0 || len(inspects) != 0 {
			t.Errorf("without viewers: %d lists, %v", lists, inspects)
		}
		w.running.Wait() // all goroutines have ended
		join(view{name: "c"})
		if f := <-subscribers[len(subscribers)-1].updates; f.parts["state"] == "" {
			t.Errorf("a later subscriber sees %v", f.page)
		}
		w.end()
		if _, _, err := w.join(view{name: "a"}); err == nil {
			t.Error("join succeeded after the end")
		}
	})
}

// TestReader_PageLoadsShareARead checks that pages that are loaded at the same time share one read.
func TestReader_PageLoadsShareARead(t *testing.T) {
	e := newStore(services(300)...)
	e.takes = 10 * time.Millisecond
	watched(t, e, func(t *testing.T, w *feeds) {
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if i%2 == 0 {
					if l := w.reader.overview(t.Context(), everything, every); l.Shown != 300 || l.Trouble != nil {
						t.Errorf("%d shown, %+v", l.Shown, l.Trouble)
					}
				} else if p := w.reader.semaphorePage(t.Context(), view{name: "service-007"}, every); p.Trouble != nil {
					t.Errorf("%+v", p.Trouble)
				}
			})
		}
		wg.Wait()
		if lists, inspects := e.asked(); lists != 1 || len(inspects) != 1 || inspects["service-007"] != 1 {
			t.Errorf("%d lists, inspects %v", lists, inspects)
		}
	})
}

// TestFeeds_ShareRenderedParts checks that viewers of the same view share a revision, and that
// unchanged parts are not rendered again.
func TestFeeds_ShareRenderedParts(t *testing.T) {
	e := newStore("a", "b")
	lease := protocol.LeaseInfo{Seq: 1, Session: 1, Weight: 1, Since: protocol.Micros(time.Now().Add(-48 * time.Hour).UnixMicro())}
	s := e.all["a"]
	s.Leases = []protocol.LeaseInfo{lease}
	e.all["a"] = s
	watched(t, e, func(t *testing.T, w *feeds) {
		filtered := everything
		filtered.Filter = "a"
		one, _ := w.mustJoin(t, everything)
		same, _ := w.mustJoin(t, everything)
		other, _ := w.mustJoin(t, filtered)
		admin, _ := w.mustJoin(t, view{name: "a", mayChange: true})
		reader, _ := w.mustJoin(t, view{name: "a"})
		if x, y, z := <-one.updates, <-same.updates, <-other.updates; x != y || x.whole() != y.whole() || x.parts["s:a"] != z.parts["s:a"] {
			t.Error("the page is not rendered once for all")
		}
		if x, y := <-admin.updates, <-reader.updates; !strings.Contains(string(x.parts["l:1"]), "Revoke…") || strings.Contains(string(y.parts["l:1"]), "Revoke…") || y.parts["verbs"] != "" {
			t.Errorf("the page has parts of another view: %v", y.page)
		}
		const marked = "rendered once"
		mark := func(c *parts, id string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			p := c.all[id]
			p.html = marked
			c.all[id] = p
		}
		mark(w.reader.rendered, "a")
		mark(w.reader.entryOf(entryKey{"a", ""}).parts, "state")
		time.Sleep(10 * every)
		if f, p := <-one.updates, <-reader.updates; f.parts["s:a"] != marked || p.parts["state"] != marked {
			t.Errorf("unchanged parts were rendered again: %s %s", f.parts["s:a"], p.parts["state"])
		}
		e.set(func() { s.InUse = 2; e.all["a"] = s })
		time.Sleep(2 * every)
		if f, p := <-one.updates, <-reader.updates; !strings.Contains(string(f.parts["s:a"]), "<b>2</b> of 4") || p.parts["state"] == marked {
			t.Errorf("a changed part was not rendered: %s", f.parts["s:a"])
		}
	})
}

// TestRevision_After checks that a subscriber is sent what has changed since its last revision.
func TestRevision_After(t *testing.T) {
	t.Parallel()
	state := func(text string) page { return page{parts: map[string]template.HTML{"state": template.HTML(text)}} }
	a := newRevision(nil, state("1"), true)
	b := newRevision(a, state("2"), true)
	c := newRevision(b, state("2"), true)
	for _, one := range []struct {
		f, seen *revision
		changed bool
	}{{a, nil, true}, {b, a, true}, {c, b, false}, {c, a, true}, {c, nil, true}, {c, c, false}} {
		if text := one.f.after(one.seen); strings.Contains(text, `"state":`) != one.changed {
			t.Errorf("%d after %v: %s", one.f.number, one.seen, text)
		}
	}
}

// TestReader_TakesTurns checks that at most atOnce semaphores are read concurrently.
func TestReader_TakesTurns(t *testing.T) {
	e := newStore(services(100)...)
	e.takes = 10 * time.Millisecond
	watched(t, e, func(t *testing.T, w *feeds) {
		var wg sync.WaitGroup
		for _, name := range services(100) {
			wg.Go(func() {
				if p := w.reader.semaphorePage(t.Context(), view{name: name}, every); p.Trouble != nil {
					t.Errorf("%+v", p.Trouble)
				}
			})
		}
		wg.Wait()
		if _, inspects := e.asked(); len(inspects) != 100 || e.most != atOnce {
			t.Errorf("%d were read, %d at a time", len(inspects), e.most)
		}
	})
}

// TestReader_ReadsASlowStoreLessOften checks that a slow store is read less often.
func TestReader_ReadsASlowStoreLessOften(t *testing.T) {
	e := newStore("a")
	e.takes = 3 * time.Second
	watched(t, e, func(t *testing.T, w *feeds) {
		w.mustJoin(t, view{name: "a"})
		time.Sleep(time.Minute)
		if _, inspects := e.asked(); inspects["a"] > 10 || inspects["a"] < 9 {
			t.Errorf("%v in a minute", inspects)
		}
	})
}

// TestFeeds_ChangesAreShownAtOnce checks that a viewer's change is shown at once.
func TestFeeds_ChangesAreShownAtOnce(t *testing.T) {
	e := newStore("a")
	watched(t, e, func(t *testing.T, w *feeds) {
		l, _ := w.mustJoin(t, view{name: "a"})
		<-l.updates
		e.set(func() { delete(e.all, "a") })
		before := time.Now()
		w.changed("a")
		if p := w.reader.semaphorePage(t.Context(), view{name: "a"}, every); !p.gone {
			t.Error("a loaded page shows the state before the change")
		}
		if f := <-l.updates; !strings.Contains(string(f.parts["state"]), "The semaphore was deleted") || time.Since(before) != 0 {
			t.Errorf("after %v: %v", time.Since(before), f.page)
		}
	})
}

func troubleIn(f *revision) string { return string(f.parts["trouble"]) }

// TestReader_ShowsOutages checks that an outage is shown with its start time until the store
// responds again.
func TestReader_ShowsOutages(t *testing.T) {
	e := newStore("a")
	watched(t, e, func(t *testing.T, w *feeds) {
		l, _ := w.mustJoin(t, view{name: "a"})
		<-l.updates
		e.set(func() { e.down = errors.New("connection refused") })
		for range 3 {
			since := time.Now().Add(every).Format(time.TimeOnly)
			first, second := <-l.updates, <-l.updates
			for _, f := range []*revision{first, second} {
				if f.live || !strings.Contains(troubleIn(f), "has not responded since "+since) || !strings.Contains(troubleIn(f), "connection refused") {
					t.Errorf("%s, want since %v", troubleIn(f), since)
				}
			}
			e.set(func() { e.down = nil })
			if back := <-l.updates; !back.live || strings.Contains(troubleIn(back), "refused") || back.parts["state"] == "" {
				t.Errorf("%+v", back.page)
			}
			e.set(func() { e.down = errors.New("connection refused") })
		}
	})
}

// TestReader_OneFailingSemaphoreIsNoOutage checks that one unreadable semaphore is not an outage,
// and is reported only to its viewers.
func TestReader_OneFailingSemaphoreIsNoOutage(t *testing.T) {
	e := newStore("mine", "b/secret")
	watched(t, e, func(t *testing.T, w *feeds) {
		e.broken["b/secret"] = errors.New(`semaphore "b/secret": created by another version`)
		their, _ := w.mustJoin(t, view{name: "b/secret"})
		all, _ := w.mustJoin(t, everything)
		my, _ := w.mustJoin(t, view{name: "mine"})
		mine := everything
		mine.prefix = "mi"
		few, _ := w.mustJoin(t, mine)
		for range 3 {
			if f := <-their.updates; f.live || !strings.Contains(troubleIn(f), "This semaphore cannot be read") || !strings.Contains(troubleIn(f), "another version") {
				t.Errorf("its viewer sees: %s", troubleIn(f))
			}
			if f := <-all.updates; !f.live || f.parts["s:b/secret"] == "" {
				t.Errorf("the overview of all shows: %v", f.page)
			}
			for _, l := range []*subscriber{my, few} {
				if f := <-l.updates; !f.live || strings.Contains(f.whole(), "secret") || strings.Contains(f.whole(), "another version") {
					t.Errorf("other viewers see: %v", f.page)
				}
			}
		}
		e.set(func() { e.down = errors.New(`semaphore "b/secret": connection refused`) })
		time.Sleep(2 * every)
		if f := <-few.updates; f.live || !strings.Contains(troubleIn(f), "has not responded since") || strings.Contains(f.whole(), "secret") {
			t.Errorf("a viewer with a prefix sees: %v", f.page)
		}
		if f := <-all.updates; f.live || !strings.Contains(troubleIn(f), "connection refused") {
			t.Errorf("a viewer without a prefix sees: %v", f.page)
		}
	})
}

// TestReader_CancelledPageIsNoOutage checks that a page whose client has disconnected is not an
// outage, and that others get the result of its read.
func TestReader_CancelledPageIsNoOutage(t *testing.T) {
	e := newStore("a")
	e.takes = every
	watched(t, e, func(t *testing.T, w *feeds) {
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { w.reader.semaphorePage(ctx, view{name: "a"}, every) })
		wg.Go(func() {
			if p := w.reader.semaphorePage(t.Context(), view{name: "a"}, every); p.Trouble != nil {
				t.Errorf("a waiting viewer sees: %+v", p.Trouble)
			}
		})
		time.Sleep(every / 2)
		leave()
		wg.Wait()
		time.Sleep(3 * every)
		e.set(func() { e.down = errors.New("connection refused") })
		down := time.Now()
		if p := w.reader.semaphorePage(t.Context(), view{name: "a"}, every); p.Trouble == nil || !p.Trouble.Since.Equal(down) {
			t.Errorf("%+v, want since %v", p.Trouble, down)
		}
	})
}

// TestReader_OfAStoreThatHangs checks that a store that hangs delays no page for long, and is soon
// no longer read.
func TestReader_OfAStoreThatHangs(t *testing.T) {
	e := newStore(services(100)...)
	e.takes = time.Hour
	watched(t, e, func(t *testing.T, w *feeds) {
		before := time.Now()
		if l := w.reader.overview(t.Context(), everything, every); l.Trouble == nil || l.Trouble.Since.IsZero() {
			t.Errorf("%d shown, %+v", l.Shown, l.Trouble)
		}
		if took := time.Since(before); took > timeout+2*every {
			t.Errorf("the page took %v", took)
		}
		time.Sleep(timeout)
		if synctest.Wait(); e.asking != 0 {
			t.Errorf("%d reads are still in progress", e.asking)
		}
	})
}

// TestReader_RemovesOldEntries checks that what is cached is bounded in time.
func TestReader_RemovesOldEntries(t *testing.T) {
	e := newStore("a")
	watched(t, e, func(t *testing.T, w *feeds) {
		for i := range 700 {
			w.reader.semaphorePage(t.Context(), view{name: "a"}, every)
			if i < 100 {
				name := fmt.Sprint(i)
				e.set(func() { e.all[name] = e.all["a"] })
				w.reader.semaphorePage(t.Context(), view{name: name}, every)
			}
			time.Sleep(every)
		}
		if len(w.reader.read) != 1 {
			t.Errorf("%d are kept", len(w.reader.read))
		}
	})
}

// An openService is a service that admits every viewer.
type openService struct {
	ctx    context.Context
	events chan string
}

type anonymousViewer struct{ Viewer }

func (anonymousViewer) Name() string          { return "" }
func (anonymousViewer) Prefix() string        { return "" }
func (anonymousViewer) MayChange(string) bool { return false }

func (openService) Admit(*http.Request) (Viewer, error)        { return anonymousViewer{}, nil }
func (openService) Explain(_ *http.Request, err error) Problem { return Problem{Title: err.Error()} }
func (openService) Unavailable(error)                          {}
func (c openService) Stream(http.ResponseWriter, *http.Request) (context.Context, func(string) bool, func(), error) {
	send := func(text string) bool {
		select {
		case c.events <- text:
			return true
		case <-c.ctx.Done():
			return false
		}
	}
	return c.ctx, send, func() {}, nil
}

// TestDashboard_StreamsSendHeartbeats checks that a stream sends an event every two seconds, also
// if a read takes longer.
func TestDashboard_StreamsSendHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newStore("a")
		e.takes = 4 * time.Second
		ctx, end := context.WithCancel(t.Context())
		c := openService{ctx, make(chan string)}
		d := New(Options{Store: e, Service: c})
		defer d.Close()
		var wg sync.WaitGroup
		defer wg.Wait()
		defer end()
		wg.Go(func() { d.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/ui/live?name=a", nil)) })
		reads := 0
		for start, received := time.Now(), time.Now(); time.Since(start) < time.Minute; received = time.Now() {
			text := <-c.events
			if strings.Contains(text, "event: update") {
				reads++
			} else if !strings.Contains(text, "retry:") && !strings.Contains(text, "event: alive\ndata: ") {
				t.Errorf("unexpected event %q", text)
			}
			if pause := time.Since(received); pause > heartbeat {
				t.Errorf("no event for %v", pause)
			}
		}
		if reads < 7 || reads > 8 {
			t.Errorf("%d reads in a minute", reads)
		}
	})
}
