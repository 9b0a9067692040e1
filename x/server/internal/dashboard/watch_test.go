package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// An engine counts how often it is asked.
type engine struct {
	mu       sync.Mutex
	all      map[string]protocol.Snapshot
	lists    int
	inspects map[string]int
	takes    time.Duration
	down     error
}

func newEngine(names ...string) *engine {
	e := &engine{all: map[string]protocol.Snapshot{}, inspects: map[string]int{}}
	for _, name := range names {
		e.all[name] = protocol.Snapshot{Config: protocol.Config{Capacity: 4}, Effective: 4, InUse: 1}
	}
	return e
}

func (e *engine) List(context.Context, string) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lists++
	return slices.Collect(maps.Keys(e.all)), e.down
}

func (e *engine) Inspect(_ context.Context, name string) (protocol.Snapshot, error) {
	time.Sleep(e.takes)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inspects[name]++
	s, ok := e.all[name]
	if !ok {
		return s, fs.ErrNotExist
	}
	return s, e.down
}

func (e *engine) Ping(context.Context) (time.Time, error) { return time.Time{}, errors.ErrUnsupported }

// asked is how often, since it was last called.
func (e *engine) asked() (lists int, inspects map[string]int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	lists, inspects = e.lists, e.inspects
	e.lists, e.inspects = 0, map[string]int{}
	return lists, inspects
}

func everything(names []string) []string { return names }

// However many look, the engine is asked once a second, and not at all when they
// have gone.
func TestLooksAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine("a", "b", "c")
		w := newWatch(e)
		var leave []func()
		var lookers []*looker
		join := func(what wish) {
			l, gone, err := w.join(what)
			if err != nil {
				t.Fatal(err)
			}
			leave, lookers = append(leave, gone), append(lookers, l)
		}
		for range 50 {
			join(wish{some: everything})
			join(wish{one: "a"})
			join(wish{one: "b"})
		}
		const seconds = 10
		time.Sleep(seconds*every - every/2)
		if lists, inspects := e.asked(); lists != seconds || inspects["a"] != seconds || inspects["b"] != seconds || inspects["c"] != seconds {
			t.Errorf("in %d seconds: %d lists, %v", seconds, lists, inspects)
		}
		for i, l := range lookers {
			if s := <-l.news; len(s.seen) != 3 || time.Since(s.at) > every {
				t.Errorf("looker %d sees %v of %v ago", i, s.seen, time.Since(s.at))
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
		join(wish{one: "c"})
		if s := <-lookers[len(lookers)-1].news; len(s.seen) != 1 {
			t.Errorf("who comes later sees %v", s.seen)
		}
		w.end()
		w.running.Wait()
		if _, _, err := w.join(wish{one: "a"}); err == nil {
			t.Error("it goes on after its end")
		}
	})
}

// An engine that is slow is asked less often.
func TestASlowEngineIsSpared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine("a")
		e.takes = 3 * time.Second
		w := newWatch(e)
		_, leave, _ := w.join(wish{one: "a"})
		time.Sleep(time.Minute)
		if _, inspects := e.asked(); inspects["a"] > 10 {
			t.Errorf("%v in a minute", inspects)
		}
		leave()
		w.end()
		w.running.Wait()
	})
}

// What somebody has changed is seen at once.
func TestAChangeIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(newEngine("a"))
		l, _, _ := w.join(wish{one: "a"})
		<-l.news
		before := time.Now()
		w.soon()
		<-l.news
		if waited := time.Since(before); waited != 0 {
			t.Errorf("after %v", waited)
		}
		w.end()
		w.running.Wait()
	})
}

// An engine that is away is told as that, with since when, until it is back.
func TestAnEngineThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine("a")
		w := newWatch(e)
		l, _, _ := w.join(wish{one: "a"})
		<-l.news
		e.mu.Lock()
		e.down = errors.New("connection refused")
		e.mu.Unlock()
		first := <-l.news
		second := <-l.news
		if first.err == nil || !second.failing.Equal(first.at) {
			t.Errorf("%v since %v, want %v", second.err, second.failing, first.at)
		}
		e.mu.Lock()
		e.down = nil
		e.mu.Unlock()
		if back := <-l.news; back.err != nil || len(back.seen) != 1 {
			t.Errorf("%+v", back)
		}
		w.end()
		w.running.Wait()
	})
}

// What is remembered for the charts is bounded in time.
func TestTrailsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine("a")
		w := newWatch(e)
		for i := range 700 {
			w.look(t.Context(), wish{one: "a"})
			if i < 100 {
				e.mu.Lock()
				e.all[fmt.Sprint(i)] = e.all["a"]
				e.mu.Unlock()
				w.look(t.Context(), wish{one: fmt.Sprint(i)})
			}
			time.Sleep(every)
		}
		if n := len(w.trailOf("a")); n < 290 || n > 302 || len(w.trails) != 1 {
			t.Errorf("%d samples of a, trails %v", n, slices.Collect(maps.Keys(w.trails)))
		}
		w.end()
	})
}
