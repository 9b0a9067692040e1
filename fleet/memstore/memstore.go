// Package memstore stores fleet semaphores in the memory of a process. It uses the model of the
// fleet protocol directly. It is for tests, and for programs that use fleet semaphores but
// run alone. All state ends with the process.
package memstore

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

func init() {
	fleet.Register("mem", func(context.Context, *url.URL) (fleet.Store, error) { return New(), nil })
}

// A Store keeps semaphores in memory. Clients that share it share its semaphores.
type Store struct {
	clock      func() time.Time
	mu         sync.Mutex
	semaphores map[string]*protocol.State
	sorted     []string               // their names, in order; nil if one was created or deleted since
	tombstone  protocol.Seq           // the highest of all deleted semaphores, so that their names need not be kept
	listeners  map[string][]*listener // by instance
	ticks      bool                   // the clock is the process's own, and a timer expires sessions
	timer      *time.Timer            // calls tick; nil while no session is open
}

// New returns an empty store. Permits of expired sessions become free by themselves.
func New() *Store {
	s := NewWithClock(time.Now)
	s.ticks = true
	return s
}

// NewWithClock returns an empty store that uses the given clock, for tests that step it. The
// clock is called by one goroutine at a time. Time passes for a semaphore only when the store
// is called.
func NewWithClock(clock func() time.Time) *Store {
	return &Store{
		clock:      clock,
		semaphores: map[string]*protocol.State{}, listeners: map[string][]*listener{},
	}
}

// nowLocked returns the time of the store's clock.
func (s *Store) nowLocked() protocol.Micros { return protocol.Micros(s.clock().UnixMicro()) }

// Open implements [fleet.Store].
func (s *Store) Open(_ context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.semaphores[name]
	if state == nil && by.MustExist {
		return 0, protocol.Config{}, fmt.Errorf("semaphore %q: %w", name, fs.ErrNotExist)
	}
	if state == nil {
		var err error
		if state, err = protocol.New(s.nowLocked(), c, s.tombstone); err != nil {
			return 0, protocol.Config{}, err
		}
		s.semaphores[name], s.sorted = state, nil
	}
	defer s.notifyLocked(name, state)
	session, config, err := state.Open(s.nowLocked(), by, c.Protocol)
	if s.ticks && s.timer == nil {
		s.timer = time.AfterFunc(tickInterval(state.TickEvery()), s.tick)
	}
	return session, config, err
}

// tick ends expired sessions, and schedules itself again while any session is open. A timer
// needs no end, unlike a goroutine: a store is never closed.
func (s *Store) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, every := s.nowLocked(), protocol.Micros(0)
	for name, state := range s.semaphores {
		if state.TickEvery() == 0 {
			continue
		}
		if state.Tick(now) {
			s.notifyLocked(name, state)
		}
		if next := state.TickEvery(); every == 0 || next > 0 && next < every {
			every = next
		}
	}
	if every == 0 {
		s.timer = nil
		return
	}
	s.timer.Reset(tickInterval(every))
}

// tickInterval bounds how often the store checks its semaphores.
func tickInterval(every protocol.Micros) time.Duration {
	return min(max(time.Duration(every)*time.Microsecond, 10*time.Millisecond), time.Second)
}

// Apply implements [fleet.Store].
func (s *Store) Apply(_ context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.semaphores[name]
	if state == nil {
		return protocol.Reply{Status: protocol.Unknown}, nil
	}
	reply := state.Apply(s.nowLocked(), b)
	s.notifyLocked(name, state)
	return reply, nil
}

// Inspect implements [fleet.Store].
func (s *Store) Inspect(_ context.Context, name string) (protocol.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.semaphores[name]
	if state == nil {
		return protocol.Snapshot{}, fmt.Errorf("semaphore %q: %w", name, fs.ErrNotExist)
	}
	defer s.notifyLocked(name, state)
	return state.Inspect(s.nowLocked()), nil
}

// Ping implements [fleet.Examiner].
func (s *Store) Ping(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock(), nil
}

// Examine implements [fleet.Examiner].
func (s *Store) Examine(context.Context) ([]fleet.Finding, error) {
	return []fleet.Finding{{Check: "persistence", Level: fleet.LevelWarning,
		Seen: "in the memory of this process: not visible to other processes, and lost when it ends", Advice: "use another store for more than tests, see docs/stores.md"}}, nil
}

// List implements [fleet.Store].
func (s *Store) List(_ context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sorted == nil {
		s.sorted = slices.Sorted(maps.Keys(s.semaphores))
	}
	first, found := slices.BinarySearch(s.sorted, max(q.Prefix, q.After))
	if found && s.sorted[first] == q.After {
		first++
	}
	var page []protocol.Summary
	for _, name := range s.sorted[first:] {
		if !strings.HasPrefix(name, q.Prefix) || len(page) == q.Most() {
			break
		}
		page = append(page, s.semaphores[name].Summary(name))
	}
	return page, nil
}

// Administer implements [fleet.Store].
func (s *Store) Administer(_ context.Context, name string, c fleet.Command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.semaphores[name]
	if state == nil {
		return fmt.Errorf("semaphore %q: %w", name, fs.ErrNotExist)
	}
	defer s.notifyLocked(name, state)
	switch {
	case c.Configure != nil:
		_, err := state.Configure(s.nowLocked(), *c.Configure)
		return err
	case c.Revoke != nil:
		if !state.Revoke(s.nowLocked(), c.Revoke.Lease, c.Revoke.AtOnce, c.Revoke.Note()) {
			return fmt.Errorf("lease %d of %q: %w", c.Revoke.Lease, name, fs.ErrNotExist)
		}
	case c.Delete:
		if err := state.CheckVersion(c.DeleteVersion); err != nil {
			return err
		}
		s.tombstone = max(s.tombstone, state.Tombstone())
		delete(s.semaphores, name)
		s.sorted = nil
	}
	return nil
}

// A listener receives the names of semaphores one after the other.
type listener struct {
	pending []string
	wakeups chan struct{} // buffered; receives when pending is not empty
}

// notifyLocked notifies the instances of sessions that have something to receive.
func (s *Store) notifyLocked(name string, state *protocol.State) {
	for _, id := range state.Woken() {
		for _, l := range s.listeners[state.Instance(id)] {
			if !slices.Contains(l.pending, name) {
				l.pending = append(l.pending, name)
			}
			select {
			case l.wakeups <- struct{}{}:
			default:
			}
		}
	}
}

// Listen implements [fleet.Store].
func (s *Store) Listen(ctx context.Context, instance string, notify func(name string)) error {
	l := &listener{wakeups: make(chan struct{}, 1)}
	s.mu.Lock()
	s.listeners[instance] = append(s.listeners[instance], l)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listeners[instance] = slices.DeleteFunc(s.listeners[instance], func(other *listener) bool { return other == l })
		if len(s.listeners[instance]) == 0 {
			delete(s.listeners, instance)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.wakeups:
		}
		s.mu.Lock()
		names := l.pending
		l.pending = nil
		s.mu.Unlock()
		for _, name := range names {
			notify(name)
		}
	}
}

// Close does nothing: other clients may use the store.
func (s *Store) Close() error { return nil }

var (
	_ fleet.Store    = (*Store)(nil)
	_ fleet.Examiner = (*Store)(nil)
)
