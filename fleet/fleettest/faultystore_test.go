package fleettest_test

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/protocol"
)

// A faultyStore is a correct store with one fault. Each function that is not nil replaces, or
// changes the result of, a correct step.
type faultyStore struct {
	*fleettest.Clock

	time           func(protocol.Micros) protocol.Micros                                                                // changes the time
	open           func(c *protocol.Config, tombstone *protocol.Seq)                                                    // changes the arguments of Open
	applyFault     func(s *faultyStore, name string, b protocol.Batch) protocol.Reply                                   // instead of applyLocked
	applyUnlocked  func(ctx context.Context, s *faultyStore, name string, b protocol.Batch) (r protocol.Reply, e error) // instead of Apply, without the lock
	changeImage    func(*protocol.Image)                                                                                // changes the stored state, after each call
	changeReply    func(*protocol.Reply)                                                                                // changes the reply
	notified       func(woken []string, all []string) []string                                                          // selects the instances to notify
	administer     func(state *protocol.State, c *fleet.Command)                                                        // changes the command
	reuseSession   func(snapshot protocol.Snapshot, instance string) protocol.Session                                   // instead of a new session, unless 0
	matches        func(name, prefix string) bool                                                                       // instead of strings.HasPrefix
	changeSnapshot func(*protocol.Snapshot)                                                                             // changes the snapshot
	changeList     func([]protocol.Summary) []protocol.Summary                                                          // changes the list
	creates        bool                                                                                                 // creates the semaphore although the opener requires that it exists
	changeFinding  func(*fleet.Finding)                                                                                 // changes the finding

	mu         sync.Mutex
	semaphores map[string]*protocol.State
	tombstones map[string]protocol.Seq
	listeners  map[string]chan string
}

func (s *faultyStore) now() protocol.Micros {
	now := protocol.Micros(s.Now().UnixMicro())
	if s.time != nil {
		now = s.time(now)
	}
	return now
}

// finishLocked notifies listeners and applies the fault of the stored state.
func (s *faultyStore) finishLocked(name string) {
	state := s.semaphores[name]
	if state == nil {
		return
	}
	var woken, all []string
	for _, id := range state.Woken() {
		woken = append(woken, state.Instance(id))
	}
	for instance := range s.listeners {
		all = append(all, instance)
	}
	if s.notified != nil {
		woken = s.notified(woken, all)
	}
	for _, instance := range woken {
		if l := s.listeners[instance]; l != nil {
			l <- name
		}
	}
	s.editLocked(name, s.changeImage)
}

// editLocked changes the stored state of a semaphore.
func (s *faultyStore) editLocked(name string, change func(*protocol.Image)) {
	if change == nil {
		return
	}
	image := s.semaphores[name].Image()
	change(&image)
	state, err := protocol.Restore(image)
	if err != nil {
		panic(err)
	}
	s.semaphores[name] = state
}

func (s *faultyStore) Open(_ context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.finishLocked(name)
	tombstone := s.tombstones[name]
	if s.open != nil {
		s.open(&c, &tombstone)
	}
	if s.semaphores[name] == nil && by.MustExist && !s.creates {
		return 0, c, fs.ErrNotExist
	}
	if s.semaphores[name] == nil {
		state, err := protocol.New(s.now(), c, tombstone)
		if err != nil {
			return 0, c, err
		}
		s.semaphores[name] = state
	}
	if s.reuseSession != nil {
		if id := s.reuseSession(s.semaphores[name].Snapshot(), by.Client.Instance); id != 0 {
			return id, c, nil
		}
	}
	return s.semaphores[name].Open(s.now(), by, c.Protocol)
}

func (s *faultyStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if s.applyUnlocked != nil {
		return s.applyUnlocked(ctx, s, name, b)
	}
	return s.lockAndApply(name, b), nil
}

func (s *faultyStore) lockAndApply(name string, b protocol.Batch) protocol.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.semaphores[name] == nil {
		return protocol.Reply{Status: protocol.Unknown}
	}
	defer s.finishLocked(name)
	if s.applyFault == nil {
		return s.applyLocked(name, b)
	}
	return s.applyFault(s, name, b)
}

// applyLocked applies a batch correctly, except for the fault of the reply.
func (s *faultyStore) applyLocked(name string, b protocol.Batch) protocol.Reply {
	r := s.semaphores[name].Apply(s.now(), b)
	if s.changeReply != nil {
		s.changeReply(&r)
	}
	return r
}

func (s *faultyStore) Inspect(_ context.Context, name string) (protocol.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.semaphores[name] == nil {
		return protocol.Snapshot{}, fs.ErrNotExist
	}
	defer s.finishLocked(name)
	snapshot := s.semaphores[name].Inspect(s.now())
	if s.changeSnapshot != nil {
		s.changeSnapshot(&snapshot)
	}
	return snapshot, nil
}

func (s *faultyStore) Administer(_ context.Context, name string, c fleet.Command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.semaphores[name]
	if state == nil {
		return fs.ErrNotExist
	}
	defer s.finishLocked(name)
	if s.administer != nil {
		s.administer(state, &c)
	}
	switch {
	case c.Configure != nil:
		_, err := state.Configure(s.now(), *c.Configure)
		return err
	case c.Revoke != nil:
		if !state.Revoke(s.now(), c.Revoke.Lease, c.Revoke.AtOnce, c.Revoke.Note()) {
			return fs.ErrNotExist
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

func (s *faultyStore) Listen(ctx context.Context, instance string, notify func(string)) error {
	names := make(chan string, 10000)
	s.mu.Lock()
	s.listeners[instance] = names
	s.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case name := <-names:
			notify(name)
		}
	}
}

func (s *faultyStore) List(_ context.Context, q protocol.ListQuery) (page []protocol.Summary, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	matches := strings.HasPrefix
	if s.matches != nil {
		matches = s.matches
	}
	for _, name := range slices.Sorted(maps.Keys(s.semaphores)) {
		if matches(name, q.Prefix) && name > q.After && len(page) < q.Most() {
			page = append(page, s.semaphores[name].Summary(name))
		}
	}
	if s.changeList != nil {
		page = s.changeList(page)
	}
	return page, nil
}

func (s *faultyStore) Ping(context.Context) (time.Time, error) { return s.Now(), nil }

func (s *faultyStore) Examine(context.Context) ([]fleet.Finding, error) {
	f := fleet.Finding{Check: "health", Level: fleet.LevelOK, Seen: "well"}
	if s.changeFinding != nil {
		s.changeFinding(&f)
	}
	return []fleet.Finding{f}, nil
}

func (s *faultyStore) Close() error { return nil }
