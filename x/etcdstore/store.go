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

// A Store is the use of an etcd cluster by one client.
type Store struct {
	connection connection
	keys       keys
	idle       time.Duration
	clock      clock
	shares     bool // batches with other processes, see combine.go
	maxValue   int
	attempts   attempts
	counts     counts

	life    context.Context
	end     context.CancelFunc
	workers sync.WaitGroup

	mu         sync.Mutex // guards what follows; no worker starts after the end
	semaphores map[string]*semaphore
	forgetAt   int // how many there may be before unused ones are forgotten
	swept      time.Time
	sweepEvery time.Duration
	cursor     string // where the next sweep begins
}

// counts are for tests and benchmarks.
type counts struct{ transactions, writes, conflicts atomic.Int64 }

// attempts have unique names.
type attempts struct {
	process string
	last    atomic.Uint64
}

func (a *attempts) next() string { return fmt.Sprintf("%s-%d", a.process, a.last.Add(1)) }

// Open opens a store. It fails within 5 s if etcd cannot be reached, if TLS fails, or
// if it does not serve this user; [Options].Lazy leaves that to the first call.
func Open(ctx context.Context, o Options) (*Store, error) {
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	s := &Store{
		connection: connection{config: config, life: life}, keys: keys{o.Prefix}, idle: o.Idle, clock: machineClock(),
		shares: true, maxValue: maxValue, attempts: attempts{process: rand.Text()[:13]},
		life: life, end: end, semaphores: map[string]*semaphore{}, forgetAt: leastForgotten, sweepEvery: sweepEvery,
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
	made := false
	o := s.do(name, &call{ctx: ctx, size: 300, act: func(now protocol.Micros, v *view) (o outcome) {
		if made = v.state == nil; made {
			if by.MustExist {
				return outcome{err: about(name, fs.ErrNotExist)}
			}
			if err := v.make(now, c); err != nil {
				return outcome{err: about(name, err)}
			}
		}
		o.session, o.config, o.err = v.state.Open(now, by, c.Protocol)
		o.err = about(name, o.err)
		return o
	}})
	if o.err != nil {
		return 0, protocol.Config{}, o.err
	}
	if made {
		s.sweep()
	}
	return o.session, o.config, nil
}

// Apply implements [fleet.Store].
func (s *Store) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	b.Ops = slices.Clone(b.Ops) // a caller that gave up may reuse them before they are applied
	o := s.do(name, &call{ctx: ctx, size: sizeOf(b), batch: &b, act: func(now protocol.Micros, v *view) outcome {
		if v.state == nil {
			return outcome{reply: protocol.Reply{Status: protocol.Unknown}}
		}
		return outcome{reply: v.state.Apply(now, b)}
	}})
	if o.err != nil {
		return protocol.Reply{}, o.err
	}
	return o.reply, nil
}

// Inspect implements [fleet.Store].
func (s *Store) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	o := s.do(name, &call{ctx: ctx, size: 100, act: func(now protocol.Micros, v *view) outcome {
		if v.state == nil {
			return outcome{err: about(name, fs.ErrNotExist)}
		}
		return outcome{snapshot: v.state.Inspect(now)}
	}})
	if o.err != nil {
		return protocol.Snapshot{}, o.err
	}
	return o.snapshot, nil
}

// Administer implements [fleet.Store].
func (s *Store) Administer(ctx context.Context, name string, c fleet.Command) error {
	return s.do(name, &call{ctx: ctx, size: 300, alone: c.Delete, act: func(now protocol.Micros, v *view) (o outcome) {
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
func (s *Store) do(name string, c *call) outcome {
	switch {
	case c.ctx.Err() != nil:
		return outcome{err: context.Cause(c.ctx)}
	case strings.Contains(name, " "):
		return outcome{err: invalid("semaphore %q: a name has no spaces", name)}
	}
	return s.semaphore(name).await(c)
}

// semaphore returns the one of that name.
func (s *Store) semaphore(name string) *semaphore {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.semaphores[name]
	if found == nil {
		if len(s.semaphores) >= s.forgetAt {
			s.forget()
		}
		found = &semaphore{store: s, used: time.Now(), view: view{name: name, maxValue: s.maxValue, pace: pace{clock: s.clock}}}
		s.semaphores[name] = found
	}
	return found
}

// leastForgotten and unused bound what this process remembers of semaphores that it
// does not use any more.
const (
	leastForgotten = 256
	unused         = time.Minute
)

// forget discards what is known of semaphores that were not used lately. The mutex is
// held.
func (s *Store) forget() {
	for name, one := range s.semaphores {
		if !one.mu.TryLock() {
			continue // it is in use; and its mutex may be held by a goroutine that wants this one
		}
		if !one.works && time.Since(one.used) > unused {
			delete(s.semaphores, name)
		}
		one.mu.Unlock()
	}
	s.forgetAt = max(leastForgotten, 2*len(s.semaphores))
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

// sleep reports whether the store is still open after a while.
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
