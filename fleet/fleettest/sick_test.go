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

// A sick store is a good one, but for one thing: what is not nil is done instead
// of, or in addition to, what is right.
type sick struct {
	*fleettest.Clock

	time       func(protocol.Micros) protocol.Micros                                                         // what the clock says
	open       func(c *protocol.Config, grave *protocol.Seq)                                                 // with what is opened
	hear       func(s *sick, name string, b protocol.Batch) protocol.Reply                                   // instead of apply
	loose      func(ctx context.Context, s *sick, name string, b protocol.Batch) (r protocol.Reply, e error) // without the lock
	cut        func(*protocol.Image)                                                                         // changes what is stored, after each call
	answer     func(*protocol.Reply)                                                                         // changes what is answered
	hint       func(told []string, all []string) []string                                                    // who is told
	administer func(state *protocol.State, c *fleet.Command)                                                 // changes what is wanted
	begin      func(snapshot protocol.Snapshot, instance string) protocol.Session                            // instead of a new session, unless 0
	matches    func(name, prefix string) bool                                                                // instead of strings.HasPrefix
	look       func(*protocol.Snapshot)                                                                      // changes what is seen
	listed     func([]protocol.Summary) []protocol.Summary                                                   // changes what is listed
	creates    bool                                                                                          // what an opener requires to exist
	examined   func(*fleet.Finding)                                                                          // changes what is found

	mu         sync.Mutex
	semaphores map[string]*protocol.State
	graves     map[string]protocol.Seq
	listeners  map[string]chan string
}

func (s *sick) now() protocol.Micros {
	now := protocol.Micros(s.Now().UnixMicro())
	if s.time != nil {
		now = s.time(now)
	}
	return now
}

// finish hints, and has the state cut.
func (s *sick) finish(name string) {
	state := s.semaphores[name]
	if state == nil {
		return
	}
	var told, all []string
	for _, id := range state.Woken() {
		told = append(told, state.Instance(id))
	}
	for instance := range s.listeners {
		all = append(all, instance)
	}
	if s.hint != nil {
		told = s.hint(told, all)
	}
	for _, instance := range told {
		if l := s.listeners[instance]; l != nil {
			l <- name
		}
	}
	s.operate(name, s.cut)
}

// operate changes what is stored of a semaphore.
func (s *sick) operate(name string, cut func(*protocol.Image)) {
	if cut == nil {
		return
	}
	image := s.semaphores[name].Image()
	cut(&image)
	state, err := protocol.Restore(image)
	if err != nil {
		panic(err)
	}
	s.semaphores[name] = state
}

func (s *sick) Open(_ context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.finish(name)
	grave := s.graves[name]
	if s.open != nil {
		s.open(&c, &grave)
	}
	if s.semaphores[name] == nil && by.MustExist && !s.creates {
		return 0, c, fs.ErrNotExist
	}
	if s.semaphores[name] == nil {
		state, err := protocol.New(s.now(), c, grave)
		if err != nil {
			return 0, c, err
		}
		s.semaphores[name] = state
	}
	if s.begin != nil {
		if id := s.begin(s.semaphores[name].Snapshot(), by.Client.Instance); id != 0 {
			return id, c, nil
		}
	}
	return s.semaphores[name].Open(s.now(), by, c.Protocol)
}

func (s *sick) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if s.loose != nil {
		return s.loose(ctx, s, name, b)
	}
	return s.locked(name, b), nil
}

func (s *sick) locked(name string, b protocol.Batch) protocol.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.semaphores[name] == nil {
		return protocol.Reply{Status: protocol.Unknown}
	}
	defer s.finish(name)
	if s.hear == nil {
		return s.apply(name, b)
	}
	return s.hear(s, name, b)
}

// apply is right, but for the answer.
func (s *sick) apply(name string, b protocol.Batch) protocol.Reply {
	r := s.semaphores[name].Apply(s.now(), b)
	if s.answer != nil {
		s.answer(&r)
	}
	return r
}

func (s *sick) Inspect(_ context.Context, name string) (protocol.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.semaphores[name] == nil {
		return protocol.Snapshot{}, fs.ErrNotExist
	}
	defer s.finish(name)
	snapshot := s.semaphores[name].Inspect(s.now())
	if s.look != nil {
		s.look(&snapshot)
	}
	return snapshot, nil
}

func (s *sick) Administer(_ context.Context, name string, c fleet.Command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.semaphores[name]
	if state == nil {
		return fs.ErrNotExist
	}
	defer s.finish(name)
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
		s.graves[name] = state.Tombstone()
		delete(s.semaphores, name)
	}
	return nil
}

func (s *sick) Listen(ctx context.Context, instance string, hint func(string)) error {
	names := make(chan string, 10000)
	s.mu.Lock()
	s.listeners[instance] = names
	s.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case name := <-names:
			hint(name)
		}
	}
}

func (s *sick) List(_ context.Context, q protocol.ListQuery) (page []protocol.Summary, err error) {
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
	if s.listed != nil {
		page = s.listed(page)
	}
	return page, nil
}

func (s *sick) Ping(context.Context) (time.Time, error) { return s.Now(), nil }

func (s *sick) Examine(context.Context) ([]fleet.Finding, error) {
	f := fleet.Finding{Check: "health", Level: fleet.LevelOK, Seen: "well"}
	if s.examined != nil {
		s.examined(&f)
	}
	return []fleet.Finding{f}, nil
}

func (s *sick) Close() error { return nil }
