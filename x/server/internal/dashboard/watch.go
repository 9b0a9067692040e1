package dashboard

import (
	"context"
	"sync"
	"time"
)

// A watch shows semaphores to all who look at the dashboard, however many they are,
// and only while there is anybody. Who wants to see the same is shown the same, which
// is drawn once for all of them.
type watch struct {
	asker   *asker
	life    context.Context // of streams
	end     context.CancelFunc
	running sync.WaitGroup
	began   time.Time

	mu     sync.Mutex
	stages map[view]*stage
}

func newWatch(e Engine, trouble func(error)) *watch {
	w := &watch{asker: newAsker(e, trouble), stages: map[view]*stage{}, began: time.Now()}
	w.life, w.end = context.WithCancel(context.Background())
	return w
}

// close returns when the engine is not looked at any more.
func (w *watch) close() {
	w.mu.Lock()
	w.end() // nobody joins from now on
	w.mu.Unlock()
	w.running.Wait()
	w.asker.close()
}

// A stage is where a view is shown.
type stage struct {
	view
	lookers map[*looker]struct{}
	latest  *frame
	hurry   chan struct{}
}

// A looker is somebody who looks. Of what is shown, only the latest counts.
type looker struct{ news chan *frame }

// join has somebody be shown a view, until it leaves.
func (w *watch) join(v view) (l *looker, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.Err() != nil {
		return nil, nil, errEnding
	}
	l = &looker{make(chan *frame, 1)}
	s := w.stages[v]
	if s == nil {
		s = &stage{view: v, lookers: map[*looker]struct{}{}, hurry: make(chan struct{}, 1)}
		w.stages[v] = s
		w.running.Go(func() { w.run(s) })
	}
	if s.latest != nil {
		l.news <- s.latest
	}
	s.lookers[l] = struct{}{}
	return l, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(s.lookers, l)
	}, nil
}

// changed has what somebody has done be seen at once.
func (w *watch) changed(name string) {
	w.asker.renew()
	w.mu.Lock()
	defer w.mu.Unlock()
	for v, s := range w.stages {
		if v.one != "" && v.one != name {
			continue
		}
		select {
		case s.hurry <- struct{}{}:
		default:
		}
	}
}

// run shows a view until nobody looks. All stages look at the same time, so that the
// engine is asked once for all of them.
func (w *watch) run(s *stage) {
	within := every
	for w.wanted(s) {
		start := time.Now()
		scene, trouble := w.draw(w.life, s.view, within)
		if w.life.Err() != nil {
			continue // it was not looked at to the end
		}
		w.show(s, scene, trouble == nil)
		within = every / 2
		select {
		case <-w.life.Done():
		case <-s.hurry:
		case <-time.After(w.untilNext(start)):
		}
	}
}

// untilNext is until a stage looks again. An engine that is slow is not asked more
// than half the time.
func (w *watch) untilNext(start time.Time) time.Duration {
	now := time.Now()
	next := start.Add(max(every, 2*now.Sub(start))).Sub(w.began)
	wait := next.Truncate(every) - now.Sub(w.began)
	if wait <= 0 {
		wait += every
	}
	return wait
}

// wanted reports whether anybody looks. If not, whoever is next begins anew.
func (w *watch) wanted(s *stage) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(s.lookers) > 0 && w.life.Err() == nil {
		return true
	}
	delete(w.stages, s.view)
	return false
}

func (w *watch) show(s *stage, to scene, live bool) {
	f := newFrame(s.latest, to, live)
	w.mu.Lock()
	defer w.mu.Unlock()
	s.latest = f
	for l := range s.lookers {
		select {
		case <-l.news: // too late
		default:
		}
		l.news <- f
	}
}

// draw is a view as it is now, or was within that time. In trouble, what pages show
// stays, and they say so.
func (w *watch) draw(ctx context.Context, v view, within time.Duration) (scene, *trouble) {
	if v.one != "" {
		p := w.asker.portrait(ctx, v, within)
		return p.scene, p.Trouble
	}
	l := w.asker.listing(ctx, v, within)
	if l.Trouble != nil {
		return troubled(l.Trouble), l.Trouble
	}
	return l.scene, nil
}
