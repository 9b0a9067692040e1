package dashboard

import (
	"context"
	"sync"
	"time"
)

// feeds keeps pages live, only while they have viewers. Viewers of the same view share a
// feed, which renders its page once for all of them.
type feeds struct {
	reader  *reader
	life    context.Context // lifetime of streams
	end     context.CancelFunc
	running sync.WaitGroup
	began   time.Time

	mu  sync.Mutex
	all map[view]*feed
}

func newFeeds(s Store, m Measures, trouble func(error)) *feeds {
	f := &feeds{reader: newReader(s, m, trouble), all: map[view]*feed{}, began: time.Now()}
	f.life, f.end = context.WithCancel(context.Background())
	return f
}

// close ends all streams and waits until the store is no longer read.
func (f *feeds) close() {
	f.mu.Lock()
	f.end() // join fails from now on
	f.mu.Unlock()
	f.running.Wait()
	f.reader.close()
}

// A feed renders a view periodically.
type feed struct {
	view
	subscribers map[*subscriber]struct{}
	latest      *revision
	now         chan struct{} // full: render the view at once
}

// A subscriber receives the latest revision of a page.
type subscriber struct{ updates chan *revision }

// join subscribes to a view until leave is called.
func (f *feeds) join(v view) (s *subscriber, leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.life.Err() != nil {
		return nil, nil, errEnding
	}
	s = &subscriber{make(chan *revision, 1)}
	one := f.all[v]
	if one == nil {
		one = &feed{view: v, subscribers: map[*subscriber]struct{}{}, now: make(chan struct{}, 1)}
		f.all[v] = one
		f.running.Go(func() { f.run(one) })
	}
	if one.latest != nil {
		s.updates <- one.latest
	}
	one.subscribers[s] = struct{}{}
	return s, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(one.subscribers, s)
	}, nil
}

// changed makes feeds render at once after a viewer has changed a semaphore.
func (f *feeds) changed(name string) {
	f.reader.changed()
	f.mu.Lock()
	defer f.mu.Unlock()
	for v, one := range f.all {
		if v.name != "" && v.name != name {
			continue
		}
		select {
		case one.now <- struct{}{}:
		default:
		}
	}
}

// run renders a view until it has no subscribers. All feeds read at the same time, so that
// they share one read of the store.
func (f *feeds) run(one *feed) {
	within := every
	for f.wanted(one) {
		start := time.Now()
		to, trouble := f.render(f.life, one.view, within)
		if f.life.Err() != nil {
			continue // the read was interrupted
		}
		f.publish(one, to, trouble == nil)
		within = every / 2
		select {
		case <-f.life.Done():
		case <-one.now:
		case <-time.After(f.untilNext(start)):
		}
	}
}

// untilNext returns the time until a feed reads again. A slow store is read for at most half
// of the time.
func (f *feeds) untilNext(start time.Time) time.Duration {
	now := time.Now()
	next := start.Add(max(every, 2*now.Sub(start))).Sub(f.began)
	wait := next.Truncate(every) - now.Sub(f.began)
	if wait <= 0 {
		wait += every
	}
	return wait
}

// wanted reports whether a feed has subscribers, and removes it otherwise.
func (f *feeds) wanted(one *feed) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(one.subscribers) > 0 && f.life.Err() == nil {
		return true
	}
	delete(f.all, one.view)
	return false
}

func (f *feeds) publish(one *feed, to page, live bool) {
	next := newRevision(one.latest, to, live)
	f.mu.Lock()
	defer f.mu.Unlock()
	one.latest = next
	for s := range one.subscribers {
		select {
		case <-s.updates: // outdated
		default:
		}
		s.updates <- next
	}
}

// render returns a view of data that is no older than within. During an outage, pages keep
// their content and show a notice.
func (f *feeds) render(ctx context.Context, v view, within time.Duration) (page, *trouble) {
	if v.name != "" {
		p := f.reader.semaphorePage(ctx, v, within)
		return p.page, p.Trouble
	}
	o := f.reader.overview(ctx, v, within)
	if o.Trouble != nil {
		return troubled(o.Trouble), o.Trouble
	}
	return o.page, nil
}
