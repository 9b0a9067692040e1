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

// An engine counts how often it is asked.
type engine struct {
	mu           sync.Mutex
	all          map[string]protocol.Snapshot
	broken       map[string]error // semaphores that cannot be read
	lists        int
	inspects     map[string]int
	asking, most int // Inspects at a time
	takes        time.Duration
	down         error
}

func newEngine(names ...string) *engine {
	e := &engine{all: map[string]protocol.Snapshot{}, inspects: map[string]int{}, broken: map[string]error{}}
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

func (e *engine) List(context.Context, string) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lists++
	return slices.Collect(maps.Keys(e.all)), e.down
}

func (e *engine) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	e.set(func() { e.asking++; e.most = max(e.most, e.asking) })
	defer e.set(func() { e.asking-- })
	if e.takes > 0 { // timers that are due at once trip the race detector in a bubble
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

func (e *engine) Ping(context.Context) (time.Time, error) { return time.Time{}, errors.ErrUnsupported }

func (e *engine) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

// asked is how often, since it was last called.
func (e *engine) asked() (lists int, inspects map[string]int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	lists, inspects = e.lists, e.inspects
	e.lists, e.inspects = 0, map[string]int{}
	return lists, inspects
}

// watched runs a test with a watch, which is ended with it.
func watched(t *testing.T, e *engine, test func(t *testing.T, w *watch)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(e, func(error) {})
		defer w.close()
		test(t, w)
	})
}

func (w *watch) mustJoin(t *testing.T, v view) (*looker, func()) {
	t.Helper()
	l, leave, err := w.join(v)
	if err != nil {
		t.Fatal(err)
	}
	return l, leave
}

var everything = view{query: query{Sort: "name"}}

// However many look, the engine is asked once a second, and not at all when they
// have gone.
func TestLooksAreShared(t *testing.T) {
	e := newEngine("a", "b", "c")
	watched(t, e, func(t *testing.T, w *watch) {
		var leave []func()
		var lookers []*looker
		join := func(v view) {
			l, gone := w.mustJoin(t, v)
			leave, lookers = append(leave, gone), append(lookers, l)
		}
		for i := range 50 {
			v := everything
			v.Filter = []string{"", "a", "b"}[i%3]
			join(v)
			join(view{one: "a", mayChange: i%2 == 0})
			join(view{one: "b", mayChange: i > 10})
			time.Sleep(every / 20) // they do not come together
		}
		time.Sleep(3 * every)
		e.asked()
		const seconds = 10
		time.Sleep(seconds * every)
		if lists, inspects := e.asked(); lists != seconds || inspects["a"] != seconds || inspects["b"] != seconds || inspects["c"] != seconds {
			t.Errorf("in %d seconds: %d lists, %v", seconds, lists, inspects)
		}
		for i, l := range lookers {
			if f := <-l.news; !f.live || i%3 == 0 && len(f.lists["rows"]) == 0 || i%3 == 1 && f.parts["state"] == "" {
				t.Errorf("looker %d sees %v", i, f.scene)
			}
		}
		for i := range 150 {
			if i != 1 {
				leave[i]()
			}
		}
		time.Sleep(every) // one look may be on its way
		e.asked()
		time.Sleep(seconds * every)
		if lists, inspects := e.asked(); lists != 0 || inspects["a"] != seconds || len(inspects) != 1 {
			t.Errorf("for one that is looked at: %d lists, %v", lists, inspects)
		}
		leave[1]()
		time.Sleep(2 * every)
		e.asked()
		time.Sleep(time.Minute)
		if lists, inspects := e.asked(); lists != 0 || len(inspects) != 0 {
			t.Errorf("nobody looks: %d lists, %v", lists, inspects)
		}
		w.running.Wait() // nothing is left behind
		join(view{one: "c"})
		if f := <-lookers[len(lookers)-1].news; f.parts["state"] == "" {
			t.Errorf("who comes later sees %v", f.scene)
		}
		w.end()
		if _, _, err := w.join(view{one: "a"}); err == nil {
			t.Error("it goes on after its end")
		}
	})
}

// Pages that many load at a time are of one look, by a few at a time.
func TestPageLoadsAreShared(t *testing.T) {
	e := newEngine(services(300)...)
	e.takes = 10 * time.Millisecond
	watched(t, e, func(t *testing.T, w *watch) {
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if i%2 == 0 {
					if l := w.asker.listing(t.Context(), everything, every); l.Shown != 300 || l.Trouble != nil {
						t.Errorf("%d shown, %+v", l.Shown, l.Trouble)
					}
				} else if p := w.asker.portrait(t.Context(), view{one: "service-007"}, every); p.Trouble != nil {
					t.Errorf("%+v", p.Trouble)
				}
			})
		}
		wg.Wait()
		lists, inspects := e.asked()
		if lists != 1 || len(inspects) != 300 || slices.Max(slices.Collect(maps.Values(inspects))) != 1 || e.most > 2*atATime {
			t.Errorf("%d lists, %d inspects of %v, %d at a time", lists, len(inspects), slices.Max(slices.Collect(maps.Values(inspects))), e.most)
		}
	})
}

// Who sees the same is shown the same, and nothing is drawn that looks as before.
func TestDrawingsAreShared(t *testing.T) {
	e := newEngine("a", "b")
	lease := protocol.LeaseInfo{Seq: 1, Session: 1, Weight: 1, Since: protocol.Micros(time.Now().Add(-48 * time.Hour).UnixMicro())}
	s := e.all["a"]
	s.Leases = []protocol.LeaseInfo{lease}
	e.all["a"] = s
	watched(t, e, func(t *testing.T, w *watch) {
		filtered := everything
		filtered.Filter = "a"
		one, _ := w.mustJoin(t, everything)
		same, _ := w.mustJoin(t, everything)
		other, _ := w.mustJoin(t, filtered)
		admin, _ := w.mustJoin(t, view{one: "a", mayChange: true})
		reader, _ := w.mustJoin(t, view{one: "a"})
		if x, y, z := <-one.news, <-same.news, <-other.news; x != y || x.whole() != y.whole() || x.parts["s:a"] != z.parts["s:a"] {
			t.Error("it is not shown once for all")
		}
		if x, y := <-admin.news, <-reader.news; !strings.Contains(string(x.parts["l:1"]), "Take back") || strings.Contains(string(y.parts["l:1"]), "Take back") || y.parts["verbs"] != "" {
			t.Errorf("what differs is shown to others: %v", y.scene)
		}
		drawn := func(id string) drawing {
			a := &w.asker.sightingOf("a").album
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.drawings[id]
		}
		row, state := drawn("row"), drawn("state")
		const marked = "drawn once"
		a := &w.asker.sightingOf("a").album
		a.mu.Lock()
		row.html, state.html = marked, marked
		a.drawings["row"], a.drawings["state"] = row, state
		a.mu.Unlock()
		time.Sleep(10 * every)
		if f, p := <-one.news, <-reader.news; f.parts["s:a"] != marked || p.parts["state"] != marked {
			t.Errorf("what has not changed was drawn again: %s %s", f.parts["s:a"], p.parts["state"])
		}
		e.set(func() { s.InUse = 2; e.all["a"] = s })
		time.Sleep(2 * every)
		if f, p := <-one.news, <-reader.news; !strings.Contains(string(f.parts["s:a"]), "<b>2</b> of 4") || p.parts["state"] == marked {
			t.Errorf("what has changed was not drawn: %s", f.parts["s:a"])
		}
	})
}

// A stage sends what has changed since what each has seen.
func TestFramesAfterOthers(t *testing.T) {
	t.Parallel()
	state := func(text string) scene { return scene{parts: map[string]template.HTML{"state": template.HTML(text)}} }
	a := newFrame(nil, state("1"), true)
	b := newFrame(a, state("2"), true)
	c := newFrame(b, state("2"), true)
	for _, one := range []struct {
		f, seen *frame
		news    bool
	}{{a, nil, true}, {b, a, true}, {c, b, false}, {c, a, true}, {c, nil, true}, {c, c, false}} {
		if text := one.f.after(one.seen); strings.Contains(text, `"state":`) != one.news {
			t.Errorf("%d after %v: %s", one.f.number, one.seen, text)
		}
	}
}

// A page of one semaphore does not wait for pages of many, also if the engine is slow.
func TestPagesOfOneComeFirst(t *testing.T) {
	e := newEngine(services(400)...)
	e.takes = 100 * time.Millisecond
	watched(t, e, func(t *testing.T, w *watch) {
		w.mustJoin(t, everything)
		synctest.Wait() // all of them are in line
		l, _ := w.mustJoin(t, view{one: "service-399"})
		for range 20 {
			before := time.Now()
			<-l.news
			if waited := time.Since(before); waited > every+2*e.takes {
				t.Errorf("the page of one hears of it after %v", waited)
			}
		}
	})
}

// Where there is not the time for all, those that were read are shown, and each of
// the others says why it is not.
func TestAnOverviewOfASlowEngine(t *testing.T) {
	e := newEngine(services(most)...)
	e.takes = 100 * time.Millisecond
	watched(t, e, func(t *testing.T, w *watch) {
		l := w.asker.listing(t.Context(), everything, every)
		if n := strings.Count(string(l.List("rows")), ">not read<"); l.Shown != most || l.Trouble != nil || n < 100 || n > 100+atATime {
			t.Errorf("%d of %d are not read; %+v", n, l.Shown, l.Trouble)
		}
	})
}

// An engine that is slow is asked less often.
func TestASlowEngineIsSpared(t *testing.T) {
	e := newEngine("a")
	e.takes = 3 * time.Second
	watched(t, e, func(t *testing.T, w *watch) {
		w.mustJoin(t, view{one: "a"})
		time.Sleep(time.Minute)
		if _, inspects := e.asked(); inspects["a"] > 10 || inspects["a"] < 9 {
			t.Errorf("%v in a minute", inspects)
		}
	})
}

// What somebody has changed is seen at once.
func TestAChangeIsSeenAtOnce(t *testing.T) {
	e := newEngine("a")
	watched(t, e, func(t *testing.T, w *watch) {
		l, _ := w.mustJoin(t, view{one: "a"})
		<-l.news
		e.set(func() { delete(e.all, "a") })
		before := time.Now()
		w.changed("a")
		if p := w.asker.portrait(t.Context(), view{one: "a"}, every); !p.gone {
			t.Error("a page that is loaded is as it was before")
		}
		if f := <-l.news; !strings.Contains(string(f.parts["state"]), "It is gone") || time.Since(before) != 0 {
			t.Errorf("after %v: %v", time.Since(before), f.scene)
		}
	})
}

func troubleIn(f *frame) string { return string(f.parts["trouble"]) }

// An engine that is away is told as that, with since when, until it is back.
func TestAnEngineThatIsAway(t *testing.T) {
	e := newEngine("a")
	watched(t, e, func(t *testing.T, w *watch) {
		l, _ := w.mustJoin(t, view{one: "a"})
		<-l.news
		e.set(func() { e.down = errors.New("connection refused") })
		for range 3 {
			since := time.Now().Add(every).Format(time.TimeOnly)
			first, second := <-l.news, <-l.news
			for _, f := range []*frame{first, second} {
				if f.live || !strings.Contains(troubleIn(f), "has not answered since "+since) || !strings.Contains(troubleIn(f), "connection refused") {
					t.Errorf("%s, want since %v", troubleIn(f), since)
				}
			}
			e.set(func() { e.down = nil })
			if back := <-l.news; !back.live || strings.Contains(troubleIn(back), "refused") || back.parts["state"] == "" {
				t.Errorf("%+v", back.scene)
			}
			e.set(func() { e.down = errors.New("connection refused") })
		}
	})
}

// One semaphore that cannot be read is not the engine, and is told to those alone who
// look at it.
func TestOneThatCannotBeRead(t *testing.T) {
	e := newEngine("mine", "b/secret")
	watched(t, e, func(t *testing.T, w *watch) {
		e.broken["b/secret"] = errors.New(`semaphore "b/secret": made by another version`)
		their, _ := w.mustJoin(t, view{one: "b/secret"})
		all, _ := w.mustJoin(t, everything)
		my, _ := w.mustJoin(t, view{one: "mine"})
		mine := everything
		mine.prefix = "mi"
		few, _ := w.mustJoin(t, mine)
		for range 3 {
			if f := <-their.news; f.live || !strings.Contains(troubleIn(f), "This semaphore cannot be read") || !strings.Contains(troubleIn(f), "another version") {
				t.Errorf("who looks at it is told: %s", troubleIn(f))
			}
			if f := <-all.news; !f.live || !strings.Contains(string(f.parts["s:b/secret"]), "another version") {
				t.Errorf("who sees all of them is told: %v", f.scene)
			}
			for _, l := range []*looker{my, few} {
				if f := <-l.news; !f.live || strings.Contains(f.whole(), "secret") || strings.Contains(f.whole(), "another version") {
					t.Errorf("others are told: %v", f.scene)
				}
			}
		}
		e.set(func() { e.down = errors.New(`semaphore "b/secret": connection refused`) })
		time.Sleep(2 * every)
		if f := <-few.news; f.live || !strings.Contains(troubleIn(f), "has not answered since") || strings.Contains(f.whole(), "secret") {
			t.Errorf("who has a prefix is told: %v", f.scene)
		}
		if f := <-all.news; f.live || !strings.Contains(troubleIn(f), "connection refused") {
			t.Errorf("who sees all is told: %v", f.scene)
		}
	})
}

// A page that somebody does not wait for says nothing of the engine, and takes the
// answer from nobody else.
func TestAPageThatIsLeft(t *testing.T) {
	e := newEngine("a")
	e.takes = every
	watched(t, e, func(t *testing.T, w *watch) {
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { w.asker.portrait(ctx, view{one: "a"}, every) })
		wg.Go(func() {
			if p := w.asker.portrait(t.Context(), view{one: "a"}, every); p.Trouble != nil {
				t.Errorf("who waits is told: %+v", p.Trouble)
			}
		})
		time.Sleep(every / 2)
		leave()
		wg.Wait()
		time.Sleep(3 * every)
		e.set(func() { e.down = errors.New("connection refused") })
		down := time.Now()
		if p := w.asker.portrait(t.Context(), view{one: "a"}, every); p.Trouble == nil || !p.Trouble.Since.Equal(down) {
			t.Errorf("%+v, want since %v", p.Trouble, down)
		}
	})
}

// An engine that hangs holds nobody up for long, and is left alone soon after.
func TestAnEngineThatHangs(t *testing.T) {
	e := newEngine(services(100)...)
	e.takes = time.Hour
	watched(t, e, func(t *testing.T, w *watch) {
		before := time.Now()
		if l := w.asker.listing(t.Context(), everything, every); l.Trouble == nil || l.Trouble.Since.IsZero() || l.Shown != 100 {
			t.Errorf("%d shown, %+v", l.Shown, l.Trouble)
		}
		if took := time.Since(before); took > patience+2*every {
			t.Errorf("it took %v", took)
		}
		time.Sleep(patience)
		if synctest.Wait(); e.asking != 0 {
			t.Errorf("%d are still asked for", e.asking)
		}
	})
}

// What is remembered is bounded in time.
func TestTrailsAreForgotten(t *testing.T) {
	e := newEngine("a")
	watched(t, e, func(t *testing.T, w *watch) {
		for i := range 700 {
			w.asker.portrait(t.Context(), view{one: "a"}, every)
			if i < 100 {
				name := fmt.Sprint(i)
				e.set(func() { e.all[name] = e.all["a"] })
				w.asker.portrait(t.Context(), view{one: name}, every)
			}
			time.Sleep(every)
		}
		if n := len(w.asker.trailOf("a")); n < 290 || n > 302 || len(w.asker.trails) != 1 {
			t.Errorf("%d samples of a, trails %v", n, slices.Collect(maps.Keys(w.asker.trails)))
		}
		if len(w.asker.seen) != 1 {
			t.Errorf("%d are kept", len(w.asker.seen))
		}
	})
}

// A crowd is a service that lets everybody in.
type crowd struct {
	ctx   context.Context
	spoke chan string
}

type anybody struct{ Viewer }

func (anybody) Name() string          { return "" }
func (anybody) Prefix() string        { return "" }
func (anybody) MayChange(string) bool { return false }

func (crowd) Admit(*http.Request) (Viewer, error)        { return anybody{}, nil }
func (crowd) Explain(_ *http.Request, err error) Problem { return Problem{Title: err.Error()} }
func (crowd) Unanswered(error)                           {}
func (c crowd) Stream(http.ResponseWriter, *http.Request) (context.Context, func(string) bool, func(), error) {
	say := func(text string) bool {
		select {
		case c.spoke <- text:
			return true
		case <-c.ctx.Done():
			return false
		}
	}
	return c.ctx, say, func() {}, nil
}

// A stream says something every other second, also where a look takes longer.
func TestStreamsGiveSignsOfLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine("a")
		e.takes = 4 * time.Second
		ctx, end := context.WithCancel(t.Context())
		c := crowd{ctx, make(chan string)}
		d := New(Options{Engine: e, Service: c})
		defer d.Close()
		var wg sync.WaitGroup
		defer wg.Wait()
		defer end()
		wg.Go(func() { d.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/ui/live?name=a", nil)) })
		looks := 0
		for start, heard := time.Now(), time.Now(); time.Since(start) < time.Minute; heard = time.Now() {
			text := <-c.spoke
			if strings.Contains(text, "event: look") {
				looks++
			} else if !strings.Contains(text, "retry:") && !strings.Contains(text, "event: alive\ndata: ") {
				t.Errorf("a browser does not understand %q", text)
			}
			if silent := time.Since(heard); silent > signOfLife {
				t.Errorf("nothing was said for %v", silent)
			}
		}
		if looks < 7 || looks > 8 {
			t.Errorf("%d looks in a minute", looks)
		}
	})
}
