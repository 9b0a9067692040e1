package etcdstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Store keeps semaphores in an etcd cluster. Stores in any number of processes share
// the cluster.
type Store struct {
	connection connection
	keys       keys
	idle       time.Duration
	clock      clock
	combines   bool // batches with those of other processes, see combine.go
	maxValue   int
	retryFor   time.Duration // how long a call is retried; tests change it
	attempts   attempts
	counts     counts

	life    context.Context // ends with Close
	end     context.CancelFunc
	workers sync.WaitGroup

	mu         sync.Mutex // guards the fields below; also held to start workers, so that none starts after Close
	semaphores map[string]*semaphore
	evictAt    int // number of semaphores at which unused ones are evicted
	swept      time.Time
	sweepEvery time.Duration
	cursor     string // where the next sweep begins
}

// counts counts operations, for tests and benchmarks.
type counts struct{ transactions, writes, conflicts atomic.Int64 }

// attempts generates the unique names of attempts.
type attempts struct {
	process string
	last    atomic.Uint64
}

func (a *attempts) next() string { return fmt.Sprintf("%s-%d", a.process, a.last.Add(1)) }

// Open opens a store. It fails within 5 s if no member can be reached, if TLS fails, or if
// a majority does not serve this user. With [Options].Lazy the first call fails instead.
func Open(ctx context.Context, o Options) (*Store, error) {
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	s := &Store{
		connection: connection{config: config, life: life}, keys: keys{o.Prefix}, idle: o.Idle, clock: machineClock(),
		combines: true, maxValue: maxValue, retryFor: retryFor, attempts: attempts{process: rand.Text()[:13]},
		life: life, end: end, semaphores: map[string]*semaphore{}, evictAt: minEvict, sweepEvery: sweepEvery,
	}
	if !o.Lazy {
		if err := s.check(ctx); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Open implements [fleet.Store].
func (s *Store) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	created := false
	o := s.do(name, &call{ctx: ctx, size: 300, act: func(now protocol.Micros, v *view) (o result) {
		if created = v.state == nil; created {
			if by.MustExist {
				return result{err: about(name, fs.ErrNotExist)}
			}
			if err := v.create(now, c); err != nil {
				return result{err: about(name, err)}
			}
		}
		o.session, o.config, o.err = v.state.Open(now, by, c.Protocol)
		o.err = about(name, o.err)
		return o
	}})
	if o.err != nil {
		return 0, protocol.Config{}, o.err
	}
	if created {
		s.sweep()
	}
	return o.session, o.config, nil
}

// Apply implements [fleet.Store].
func (s *Store) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	b.Ops = slices.Clone(b.Ops) // a caller whose context has ended may reuse them before they are applied
	o := s.do(name, &call{ctx: ctx, size: sizeOf(b), batch: &b, act: func(now protocol.Micros, v *view) result {
		if v.state == nil {
			return result{reply: protocol.Reply{Status: protocol.Unknown}}
		}
		return result{reply: v.state.Apply(now, b)}
	}})
	if o.err != nil {
		return protocol.Reply{}, o.err
	}
	return o.reply, nil
}

// Inspect implements [fleet.Store].
func (s *Store) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	o := s.do(name, &call{ctx: ctx, size: 100, act: func(now protocol.Micros, v *view) result {
		if v.state == nil {
			return result{err: about(name, fs.ErrNotExist)}
		}
		return result{snapshot: v.state.Inspect(now)}
	}})
	if o.err != nil {
		return protocol.Snapshot{}, o.err
	}
	return o.snapshot, nil
}

// Administer implements [fleet.Store].
func (s *Store) Administer(ctx context.Context, name string, c fleet.Command) error {
	return s.do(name, &call{ctx: ctx, size: 300, alone: c.Delete, act: func(now protocol.Micros, v *view) (o result) {
		switch {
		case v.state == nil:
			o.err = fs.ErrNotExist
		case c.Configure != nil:
			_, o.err = v.state.Configure(now, *c.Configure)
		case c.Revoke != nil:
			if !v.state.Revoke(now, c.Revoke.Lease, c.Revoke.AtOnce, c.Revoke.Note()) {
				o.err = fmt.Errorf("lease %d: %w", c.Revoke.Lease, fs.ErrNotExist)
			}
		case c.Delete:
			if o.err = v.state.CheckVersion(c.DeleteVersion); o.err == nil {
				v.state = nil
			}
		}
		o.err = about(name, o.err)
		return o
	}}).err
}

// Close implements [fleet.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.workers.Wait()
	return s.connection.close()
}

// about adds the name of the semaphore to an error.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("semaphore %q: %w", name, err)
}

// do passes a call to the worker of a semaphore and waits for its end.
func (s *Store) do(name string, c *call) result {
	switch {
	case c.ctx.Err() != nil:
		return result{err: context.Cause(c.ctx)}
	case strings.Contains(name, " "):
		return result{err: invalid("semaphore %q: a name has no spaces", name)}
	}
	return s.semaphore(name).await(c)
}

// semaphore returns the semaphore of that name from the map, and adds it if it is missing.
func (s *Store) semaphore(name string) *semaphore {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.semaphores[name]
	if found == nil {
		if len(s.semaphores) >= s.evictAt {
			s.evictLocked()
		}
		found = &semaphore{store: s, used: time.Now(), view: view{name: name, maxValue: s.maxValue, pace: pace{clock: s.clock}}}
		s.semaphores[name] = found
	}
	return found
}

// minEvict and unused bound what this process keeps of semaphores that it does not use any
// more.
const (
	minEvict = 256
	unused   = time.Minute
)

// evictLocked discards what is known of semaphores that were not used lately.
func (s *Store) evictLocked() {
	for name, one := range s.semaphores {
		if !one.mu.TryLock() {
			continue // it is in use; and its mutex may be held by a goroutine that waits for Store.mu
		}
		if !one.working && time.Since(one.used) > unused {
			delete(s.semaphores, name)
		}
		one.mu.Unlock()
	}
	s.evictAt = max(minEvict, 2*len(s.semaphores))
}

// start starts a worker, unless the store is closed.
func (s *Store) start(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return false
	}
	s.workers.Go(work)
	return true
}

// sleep waits for d and reports whether the store is still open.
func (s *Store) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.life.Done():
		return false
	case <-timer.C:
		return true
	}
}

var (
	_ fleet.Store    = (*Store)(nil)
	_ fleet.Examiner = (*Store)(nil)
)
