// Package memstore is the fleet protocol's model as an engine, in the memory of
// a process: for tests, and for programs that use fleet semaphores but run
// alone. What it has is gone with the process.
package memstore

import (
	"context"
	"fmt"
	"io/fs"
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

// A Store is an engine in memory. Clients that share it share its semaphores.
type Store struct {
	clock      func() time.Time
	mu         sync.Mutex
	semaphores map[string]*protocol.State
	tombstones map[string]protocol.Seq
	listeners  map[string][]*listener // by instance
	ticks      bool                   // the clock is the process's own
	timer      *time.Timer            // calls tick; nil while no session is open
}

// New returns an empty store. What expired sessions held becomes free by itself.
func New() *Store {
	s := NewWithClock(time.Now)
	s.ticks = true
	return s
}

// NewWithClock makes an empty store with a clock of its own, for tests that step
// it. It is called by one goroutine at a time. Time passes for a semaphore only when
// the store is called.
func NewWithClock(clock func() time.Time) *Store {
	return &Store{
		clock:      clock,
		semaphores: map[string]*protocol.State{}, tombstones: map[string]protocol.Seq{}, listeners: map[string][]*listener{},
	}
}

// now is the time. The mutex is held.
func (s *Store) now() protocol.Micros { return protocol.Micros(s.clock().UnixMicro()) }

// Open is for [fleet.Store].
func (s *Store) Open(_ context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.semaphores[name]
	if state == nil && by.MustExist {
		return 0, protocol.Config{}, fmt.Errorf("semaphore %q: %w", name, fs.ErrNotExist)
	}
	if state == nil {
		var err error
		if state, err = protocol.New(s.now(), c, s.tombstones[name]); err != nil {
			return 0, protocol.Config{}, err
		}
		s.semaphores[name] = state
	}
	defer s.hint(name, state)
	session, config, err := state.Open(s.now(), by, c.Protocol)
	if s.ticks && s.timer == nil {
		s.timer = time.AfterFunc(pause(state.TickEvery()), s.tick)
	}
	return session, config, err
}

// tick ends sessions that have expired, and comes again while there are any. A
// timer, unlike a goroutine, needs no end: a store is never closed.
func (s *Store) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, every := s.now(), protocol.Micros(0)
	for name, state := range s.semaphores {
		if state.TickEvery() == 0 {
			continue
		}
		if state.Tick(now) {
			s.hint(name, state)
		}
		if next := state.TickEvery(); every == 0 || next > 0 && next < every {
			every = next
		}
	}
	if every == 0 {
		s.timer = nil
		return
	}
	s.timer.Reset(pause(every))
}

// pause bounds how often the store looks at its semaphores.
func pause(every protocol.Micros) time.Duration {
	return min(max(time.Duration(every)*time.Microsecond, 10*time.Millisecond), time.Second)
}

// Apply is for [fleet.Store].
func (s *Store) Apply(_ context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.semaphores[name]
	if state == nil {
		return protocol.Reply{Status: protocol.Unknown}, nil
	}
	reply := state.Apply(s.now(), b)
	s.hint(name, state)
	return reply, nil
}

// Inspect is for [fleet.Store].
func (s *Store) Inspect(_ context.Context, name string) (protocol.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.semaphores[name]
	if state == nil {
		return protocol.Snapshot{}, fmt.Errorf("semaphore %q: %w", name, fs.ErrNotExist)
	}
	defer s.hint(name, state)
	return state.Inspect(s.now()), nil
}

// Ping is for [fleet.Examiner].
func (s *Store) Ping(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock(), nil
}

// Examine is for [fleet.Examiner].
func (s *Store) Examine(context.Context) ([]fleet.Finding, error) {
	return []fleet.Finding{{Check: "persistence", Level: fleet.LevelWarning,
		Seen: "in the memory of this process: nobody else sees it, and it is gone with it", Advice: "use another engine for more than tests, see docs/stores.md"}}, nil
}

// List implements [fleet.Store].
func (s *Store) List(_ context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.semaphores {
		if strings.HasPrefix(name, q.Prefix) && name > q.After {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var page []protocol.Summary
	for _, name := range names[:min(len(names), q.Most())] {
		page = append(page, s.semaphores[name].Summary(name))
	}
	return page, nil
}

// Administer is for [fleet.Store].
func (s *Store) Administer(_ context.Context, name string, c fleet.Command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.semaphores[name]
	if state == nil {
		return fmt.Errorf("semaphore %q: %w", name, fs.ErrNotExist)
	}
	defer s.hint(name, state)
	switch {
	case c.Configure != nil:
		_, err := state.Configure(s.now(), *c.Configure)
		return err
	case c.Revoke != nil:
		if !state.Revoke(s.now(), c.Revoke.Lease, c.Revoke.AtOnce, c.Revoke.Note()) {
			return fmt.Errorf("lease %d of %q: %w", c.Revoke.Lease, name, fs.ErrNotExist)
		}
	case c.Delete:
		if err := state.CheckVersion(c.DeleteVersion); err != nil {
			return err
		}
		s.tombstones[name] = state.Tombstone()
		delete(s.semaphores, name)
	}
	return nil
}

// A listener has names told to it one after the other.
type listener struct {
	pending []string
	news    chan struct{} // buffered
}

// hint tells the instances of sessions that have news. The store's mutex is
// held.
func (s *Store) hint(name string, state *protocol.State) {
	for _, id := range state.Woken() {
		for _, l := range s.listeners[state.Instance(id)] {
			if !slices.Contains(l.pending, name) {
				l.pending = append(l.pending, name)
			}
			select {
			case l.news <- struct{}{}:
			default:
			}
		}
	}
}

// Listen is for [fleet.Store].
func (s *Store) Listen(ctx context.Context, instance string, hint func(name string)) error {
	l := &listener{news: make(chan struct{}, 1)}
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
		case <-l.news:
		}
		s.mu.Lock()
		names := l.pending
		l.pending = nil
		s.mu.Unlock()
		for _, name := range names {
			hint(name)
		}
	}
}

// Close does nothing: other clients may use the store.
func (s *Store) Close() error { return nil }

var (
	_ fleet.Store    = (*Store)(nil)
	_ fleet.Examiner = (*Store)(nil)
)
