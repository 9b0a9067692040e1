package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

const (
	// pollEvery is how often a semaphore that is watched is read, about.
	pollEvery = 500 * time.Millisecond
	// pollGap is the shortest time between two reads of it, for new watchers and changes.
	pollGap = 50 * time.Millisecond
	// heartbeat is how often a watcher is sent something at least, so that a client that
	// has gone is noticed.
	heartbeat = 15 * time.Second
)

// watches polls each semaphore that is watched once, however many watchers it has: JSON
// streams, RPC streams, drains that wait, and pages of the dashboard.
type watches struct {
	service *service
	running sync.WaitGroup // polls; added to while mu is held and closed is false

	watched atomic.Int64 // len(polls), for the fast path of acquires

	mu     sync.Mutex
	closed bool
	polls  map[string]*poll
}

// A poll reads one semaphore while it has watchers. The mutex of watches guards it.
type poll struct {
	watchers map[*watcher]struct{}
	latest   *observation  // nil: there is none yet, it has failed, or an administrator has changed the semaphore since
	outdated bool          // this server has applied a batch since latest was read
	changes  int           // how often an administrator has changed the semaphore, or a batch was applied
	paused   bool          // the semaphore is not being read
	now      chan struct{} // full when the semaphore is to be read at once
}

// An observation is a semaphore as one poll has seen it, shared by all watchers.
type observation struct {
	at       time.Time
	snapshot protocol.Snapshot
	err      error
	info     func() info   // the first page
	json     func() []byte // the same, encoded
}

func newObservation(name string, s protocol.Snapshot, err error) *observation {
	o := &observation{at: time.Now(), snapshot: s, err: err}
	o.info = sync.OnceValue(func() info {
		first, _ := newInfo(name, s, page{})
		return first
	})
	o.json = sync.OnceValue(func() []byte {
		text, _ := json.Marshal(o.info())
		return text
	})
	return o
}

// A watcher receives the latest observation. One that it has not received in time is
// replaced by the next.
type watcher struct {
	updates chan *observation
	served  bool // it was sent an observation
}

func newWatches(s *service) *watches { return &watches{service: s, polls: map[string]*poll{}} }

// close returns when nothing is polled any more. It is called after the service's life
// has ended.
func (w *watches) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}

// join adds a watcher of a semaphore, which is paired with leave.
func (w *watches) join(name string) *watcher {
	one := &watcher{updates: make(chan *observation, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.polls[name]
	if p == nil {
		p = &poll{watchers: map[*watcher]struct{}{}, now: make(chan struct{}, 1)}
		w.polls[name] = p
		w.watched.Store(int64(len(w.polls)))
		if !w.closed {
			w.running.Go(func() { w.run(name, p) })
		}
	}
	switch {
	case p.latest != nil && !p.outdated:
		one.updates <- p.latest
		one.served = true
	case p.paused:
		p.wake()
	}
	p.watchers[one] = struct{}{}
	return one
}

func (w *watches) leave(name string, one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.polls[name]; p != nil {
		delete(p.watchers, one)
		if len(p.watchers) == 0 {
			delete(w.polls, name)
			w.watched.Store(int64(len(w.polls)))
			p.wake() // it ends
		}
	}
}

// changed makes watchers see a change of this server at once, and recent not return what
// was before it.
func (w *watches) changed(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.polls[name]; p != nil {
		p.latest = nil
		p.changes++
		p.wake()
	}
}

// applied notes that this server has applied a batch: a client that watches next sees it.
func (w *watches) applied(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.polls[name]; p != nil {
		p.outdated = true
		p.changes++
	}
}

func (p *poll) wake() {
	select {
	case p.now <- struct{}{}:
	default:
	}
}

// recent returns a semaphore as the latest poll has seen it, and otherwise reads it.
func (w *watches) recent(ctx context.Context, name string) (protocol.Snapshot, error) {
	w.mu.Lock()
	var latest *observation
	if p := w.polls[name]; p != nil {
		latest = p.latest
	}
	w.mu.Unlock()
	if latest != nil && latest.err == nil && time.Since(latest.at) < 2*pollEvery {
		return latest.snapshot, nil
	}
	return w.service.snapshot(ctx, name)
}

// run polls a semaphore until it has no watchers.
func (w *watches) run(name string, p *poll) {
	var last *observation // what the watchers know
	for {
		w.mu.Lock()
		p.paused = false
		wanted, changes := len(p.watchers) > 0, p.changes
		w.mu.Unlock()
		if !wanted || w.service.life.Err() != nil {
			return
		}
		start := time.Now()
		snapshot, err := w.service.snapshot(w.service.life, name)
		if w.service.life.Err() != nil {
			return
		}
		now := newObservation(name, snapshot, err)
		same := last != nil && (err == nil) == (last.err == nil) && (err != nil || !differ(last.snapshot, snapshot))
		w.publish(p, now, changes, !same)
		if !same {
			last = now
		}
		select {
		case <-w.service.life.Done():
		case <-p.now:
			time.Sleep(time.Until(start.Add(pollGap)))
		case <-time.After(pollEvery - pollEvery/10 + rand.N(pollEvery/5)):
		}
	}
}

// publish keeps an observation for watchers to come, unless it has failed or this server
// has changed the semaphore meanwhile. It sends it to the watchers if it is new, and to
// those that were sent none.
func (w *watches) publish(p *poll, now *observation, changes int, isNew bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.paused = true
	unchanged := p.changes == changes
	switch {
	case now.err != nil:
		p.latest = nil
	case unchanged || p.latest != nil: // an administrator's change would have removed it
		p.latest, p.outdated = now, !unchanged
	}
	for one := range p.watchers {
		if !isNew && one.served {
			continue
		}
		one.served = true
		select {
		case <-one.updates:
		default:
		}
		one.updates <- now
	}
}

// differ compares two snapshots of a semaphore without the times of heartbeats.
func differ(a, b protocol.Snapshot) bool {
	a.Sessions, b.Sessions = unseen(a.Sessions), unseen(b.Sessions)
	return !reflect.DeepEqual(a, b)
}

func unseen(sessions []protocol.SessionInfo) []protocol.SessionInfo {
	sessions = slices.Clone(sessions)
	for i := range sessions {
		sessions[i].Renewed = 0
	}
	slices.SortFunc(sessions, func(a, b protocol.SessionInfo) int { return cmp.Compare(a.Session, b.Session) })
	return sessions
}

// watch sends a semaphore as it is, again whenever it has changed, and nil as a
// heartbeat, until ctx ends or send returns false. While the store cannot be read, it
// sends the error. It fails if the first read does. After the semaphore was deleted it
// sends that, and ends.
func (s *service) watch(ctx context.Context, name string, send func(*observation) bool) error {
	if err := s.authorize(ctx, Read, name); err != nil {
		return err
	}
	one := s.accountOf(ctx)
	if err := s.enter(one, streams, &s.streams); err != nil {
		return err
	}
	defer s.leave(one, streams, &s.streams)
	ctx, cancel := until(ctx, s.watching)
	defer cancel()
	w := s.watches.join(name)
	defer s.watches.leave(name, w)
	for first := true; ; first = false {
		var now *observation
		select {
		case now = <-w.updates:
		case <-time.After(heartbeat):
		case <-ctx.Done():
			if first {
				return context.Cause(ctx)
			}
			return nil
		}
		if first && now != nil && now.err != nil {
			return now.err
		}
		if now == nil {
			if !send(nil) {
				return nil
			}
			continue
		}
		if !s.sending(ctx, func() bool { return send(now) }) {
			return nil
		}
		if errors.Is(now.err, fs.ErrNotExist) {
			return nil
		}
	}
}
