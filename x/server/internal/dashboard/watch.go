package dashboard

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

const (
	every    = time.Second     // how often the engine is looked at, while anybody looks
	patience = 5 * time.Second // how long it has to answer
	atATime  = 8               // semaphores that are asked for, so that to look is no burden
	most     = 500             // that one page shows
)

// A watch looks at semaphores for all who look at the dashboard, however many they
// are, and only while there is anybody.
type watch struct {
	engine  Engine
	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup
	hurry   chan struct{} // somebody has changed something

	mu      sync.Mutex
	lookers map[*looker]struct{}
	looking bool // somebody is at it
	failing time.Time
	trails  map[string]*trail
}

func newWatch(e Engine) *watch {
	w := &watch{engine: e, hurry: make(chan struct{}, 1), lookers: map[*looker]struct{}{}, trails: map[string]*trail{}}
	w.life, w.end = context.WithCancel(context.Background())
	return w
}

// A wish is what somebody wants to see: one semaphore, or some of all.
type wish struct {
	one  string
	some func(all []string) []string
}

// A looker is somebody with a wish. Of what is seen, only the latest counts.
type looker struct {
	wish
	news chan *sight
}

// A sight is what was seen at a time.
type sight struct {
	at      time.Time // here
	now     time.Time // by the engine's clock, which says since when permits are held
	names   []string  // of all semaphores, if anybody wanted to know
	seen    map[string]protocol.Snapshot
	failed  map[string]error // those that could not be looked at
	err     error            // the engine does not answer
	failing time.Time        // and since when
}

// join has somebody told, from the next look on, until it leaves.
func (w *watch) join(what wish) (l *looker, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.Err() != nil {
		return nil, nil, errEnding
	}
	l = &looker{what, make(chan *sight, 1)}
	w.lookers[l] = struct{}{}
	if !w.looking {
		w.looking = true
		w.running.Go(w.run)
	}
	return l, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.lookers, l)
	}, nil
}

var errEnding = &sema.Error{Op: "watch", Err: sema.ErrClosed, Detail: "this server is being stopped"}

// soon has the next look be at once.
func (w *watch) soon() {
	select {
	case w.hurry <- struct{}{}:
	default:
	}
}

// run looks until nobody does. An engine that is slow is not asked more than half
// the time.
func (w *watch) run() {
	for {
		wishes := w.wishes()
		if len(wishes) == 0 {
			return
		}
		start := time.Now()
		s := w.look(w.life, wishes...)
		w.tell(s)
		took := time.Since(start)
		select {
		case <-w.life.Done():
		case <-w.hurry:
		case <-time.After(max(every-took, took)):
		}
	}
}

// wishes are of all who look. If there are none, whoever is next begins anew.
func (w *watch) wishes() (all []wish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.Err() == nil {
		for l := range w.lookers {
			all = append(all, l.wish)
		}
	}
	w.looking = len(all) > 0
	return all
}

func (w *watch) tell(s *sight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.lookers {
		select {
		case <-l.news: // too late
		default:
		}
		l.news <- s
	}
}

// look asks the engine for all that somebody wants to see, and for each once.
func (w *watch) look(ctx context.Context, wishes ...wish) *sight {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := &sight{at: time.Now(), seen: map[string]protocol.Snapshot{}, failed: map[string]error{}}
	wanted := map[string]bool{}
	for _, one := range wishes {
		if one.some == nil {
			wanted[one.one] = true
		} else if s.names == nil {
			if s.names, s.err = w.engine.List(ctx, ""); s.err != nil {
				w.note(s)
				return s
			}
			slices.Sort(s.names)
		}
	}
	for _, one := range wishes {
		if one.some != nil {
			for _, name := range one.some(s.names) {
				wanted[name] = true
			}
		}
	}
	s.now = s.at
	if there, err := w.engine.Ping(ctx); err == nil && !there.IsZero() {
		s.now = there
	}
	w.inspect(ctx, s, wanted)
	w.note(s)
	return s
}

func (w *watch) inspect(ctx context.Context, s *sight, wanted map[string]bool) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	turns := make(chan struct{}, atATime)
	for name := range wanted {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			snapshot, err := w.engine.Inspect(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, fs.ErrNotExist): // or not any more
			case err != nil:
				s.failed[name], s.err = err, err
			default:
				s.seen[name] = snapshot
			}
		})
	}
	wg.Wait()
	if len(s.seen) > 0 {
		s.err = nil // it does answer
	}
}

// note remembers what was seen, for the charts, and since when nothing is.
func (w *watch) note(s *sight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.err != nil {
		if w.failing.IsZero() {
			w.failing = s.at
		}
		s.failing = w.failing
		return
	}
	w.failing = time.Time{}
	for name, snapshot := range s.seen {
		t := w.trails[name]
		if t == nil {
			t = &trail{}
			w.trails[name] = t
		}
		t.add(sample{s.at, snapshot.InUse, snapshot.Effective, int64(len(snapshot.Line))})
	}
	for name, t := range w.trails {
		if t.forget(s.at.Add(-trailSpan)) {
			delete(w.trails, name)
		}
	}
}

// trailOf is what is remembered of a semaphore, oldest first.
func (w *watch) trailOf(name string) []sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.trails[name]; t != nil {
		return slices.Clone(t.samples)
	}
	return nil
}
