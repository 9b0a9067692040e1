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
	// pollEvery is the interval, give or take a tenth, at which a watched semaphore is read.
	pollEvery = 500 * time.Millisecond
	// pollGap is the shortest interval between two reads for new watchers and changes.
	pollGap = 50 * time.Millisecond
	// heartbeat is the longest interval at which a watcher is sent something, so that a
	// disconnected client is noticed.
	heartbeat = 15 * time.Second
)

// watches polls each watched semaphore once for any number of watchers: JSON streams, RPC
// streams, drains that wait, and dashboard pages.
type watches struct {
	service *service
	running sync.WaitGroup // polls; incremented only while mu is held and closed is false

	watched atomic.Int64 // len(polls), for the fast path of acquires

	mu     sync.Mutex
	closed bool
	polls  map[string]*poll
}

// A poll reads one semaphore while it has watchers. The mutex of watches guards it.
type poll struct {
	watchers map[*watcher]struct{}
	latest   *observation  // nil: none yet, the last read failed, or an administrator has changed the semaphore since
	outdated bool          // this server has applied a batch since latest was read
	changes  int           // how often an administrator has changed the semaphore, or a batch was applied
	paused   bool          // the semaphore is not being read
	now      chan struct{} // full: read the semaphore at once
}

// An observation is the result of one read of a semaphore, shared by all watchers.
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

// A watcher receives the latest observation. An observation that was not received yet is
// replaced by the next one.
type watcher struct {
	updates chan *observation
	served  bool // at least one observation was sent
}

func newWatches(s *service) *watches { return &watches{service: s, polls: map[string]*poll{}} }

// close waits until all polls have ended. It is called after the service's life has ended.
func (w *watches) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}

// join adds a watcher of a semaphore. Pair it with leave.
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
			p.wake() // run ends
		}
	}
}

// changed wakes the poll of a semaphore after this server has changed it, and makes recent
// ignore observations from before the change.
func (w *watches) changed(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.polls[name]; p != nil {
		p.latest = nil
		p.changes++
		p.wake()
	}
}

// applied marks the latest observation as outdated after this server has applied a batch:
// the next watcher to join gets a fresh one.
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

// recent returns the semaphore as last observed if that is recent enough, and otherwise
// reads it.
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
	var last *observation // the last one that was sent to watchers
	for {
		w.mu.Lock()
		p.paused = false
		wanted, changes := len(p.watchers) > 0, p.changes
		w.mu.Unlock()
		if !wanted || w.service.life.Err() != nil {
			return
		}
		start := time.Now()
		snapshot, err := w.service.read(w.service.life, name)
		if w.service.life.Err() != nil {
			return
		}
		now := newObservation(name, snapshot, named("watch", name, err))
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

// publish stores an observation for later watchers, unless the read has failed or an
// administrator has changed the semaphore in the meantime. It sends the observation to all
// watchers if it is new, and otherwise to those that were sent none.
func (w *watches) publish(p *poll, now *observation, changes int, isNew bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.paused = true
	unchanged := p.changes == changes
	switch {
	case now.err != nil:
		p.latest = nil
	case unchanged || p.latest != nil: // an administrator's change would have set latest to nil
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

// differ compares two snapshots of a semaphore, ignoring the times of heartbeats.
func differ(a, b protocol.Snapshot) bool {
	a.Sessions, b.Sessions = withoutHeartbeats(a.Sessions), withoutHeartbeats(b.Sessions)
	return !reflect.DeepEqual(a, b)
}

func withoutHeartbeats(sessions []protocol.SessionInfo) []protocol.SessionInfo {
	sessions = slices.Clone(sessions)
	for i := range sessions {
		sessions[i].Renewed = 0
	}
	slices.SortFunc(sessions, func(a, b protocol.SessionInfo) int { return cmp.Compare(a.Session, b.Session) })
	return sessions
}

// watch sends the state of a semaphore, then each change, and nil as a heartbeat, until ctx
// ends or send returns false. While the store cannot be read, it sends the error. It fails
// if the first read fails. After the semaphore was deleted, it sends that error and returns.
func (s *service) watch(ctx context.Context, name string, send func(*observation) bool) error {
	if err := s.authorize(ctx, Read, name); err != nil {
		return err
	}
	one := s.accountOf(ctx)
	if err := s.enter(one, streams, &s.streams); err != nil {
		return err
	}
	defer s.leave(one, streams, &s.streams)
	ctx, cancel := withLife(ctx, s.watching)
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
