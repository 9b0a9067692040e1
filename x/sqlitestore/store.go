package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Store is the use of a file by one client. The stores of one process share a
// file.
type Store struct {
	engine *engine
	prefix string
	once   sync.Once
	closed chan struct{}
}

// Options configure the use of a file.
type Options struct {
	// Prefix is put before the names of semaphores, so that clients can share a
	// file and not their semaphores.
	Prefix string
	// Normal does not wait for the disk: what was acknowledged survives a crash of
	// the process, but the last of it may be lost with the power.
	Normal bool
	// ReadOnly is for [OpenReader], which [fleet.Open] calls for mode=ro. Open
	// rejects it.
	ReadOnly bool
}

// Open opens a file, and creates it if it is missing. One process at a time has it
// open.
func Open(path string, o Options) (*Store, error) {
	if err := o.check(path); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, invalid("%s: a Store writes; use OpenReader to read only", path)
	}
	e, err := share(path, o.Normal)
	if err != nil {
		return nil, err
	}
	return &Store{engine: e, prefix: o.Prefix, closed: make(chan struct{})}, nil
}

// Open implements [fleet.Store].
func (s *Store) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	var (
		session protocol.Session
		config  protocol.Config
	)
	err := s.do(ctx, name, 1, func(now protocol.Micros, k *kept) (err error) {
		if k.state == nil && by.MustExist {
			return about(name, fs.ErrNotExist)
		}
		if k.state == nil {
			if err = k.make(now, c); err != nil {
				return about(name, err)
			}
		}
		session, config, err = k.state.Open(now, by, c.Protocol)
		return about(name, err)
	})
	if err != nil {
		return 0, protocol.Config{}, err
	}
	return session, config, nil
}

// Apply implements [fleet.Store].
func (s *Store) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	b.Ops = slices.Clone(b.Ops) // a caller that gave up may reuse them before they are applied
	var reply protocol.Reply
	err := s.do(ctx, name, 1+len(b.Ops), func(now protocol.Micros, k *kept) error {
		if k.state == nil {
			reply.Status = protocol.Unknown
			return nil
		}
		reply = k.state.Apply(now, b)
		return nil
	})
	if err != nil {
		return protocol.Reply{}, err
	}
	return reply, nil
}

// Inspect implements [fleet.Store].
func (s *Store) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	var snapshot protocol.Snapshot
	err := s.do(ctx, name, 1, func(now protocol.Micros, k *kept) error {
		if k.state == nil {
			return about(name, fs.ErrNotExist)
		}
		snapshot = k.state.Inspect(now)
		return nil
	})
	if err != nil {
		return protocol.Snapshot{}, err
	}
	return snapshot, nil
}

// Administer implements [fleet.Store].
func (s *Store) Administer(ctx context.Context, name string, c fleet.Command) error {
	return s.do(ctx, name, 1, func(now protocol.Micros, k *kept) error {
		switch {
		case k.state == nil:
			return about(name, fs.ErrNotExist)
		case c.Configure != nil:
			_, err := k.state.Configure(now, *c.Configure)
			return about(name, err)
		case c.Revoke != nil:
			if !k.state.Revoke(now, c.Revoke.Lease, c.Revoke.AtOnce, c.Revoke.Note()) {
				return about(name, fmt.Errorf("lease %d: %w", c.Revoke.Lease, fs.ErrNotExist))
			}
		case c.Delete:
			if err := k.state.CheckVersion(c.DeleteVersion); err != nil {
				return about(name, err)
			}
			k.delete()
		}
		return nil
	})
}

// Listen implements [fleet.Store].
func (s *Store) Listen(ctx context.Context, instance string, hint func(name string)) error {
	l := s.engine.listeners.add(instance, s.prefix)
	defer s.engine.listeners.remove(instance, l)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.closed:
			return s.engine.fault(errClosed)
		case <-l.news:
		}
		for _, name := range s.engine.listeners.take(l) {
			hint(name)
		}
	}
}

// Close implements [fleet.Store]. It closes the file if no other store of this
// process uses it.
func (s *Store) Close() (err error) {
	s.once.Do(func() {
		close(s.closed)
		err = s.engine.unshare()
	})
	return err
}

// about adds the name of the semaphore to an error.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("semaphore %q: %w", name, err)
}

var errClosed = errors.New("the store is closed")

// do passes an action on a semaphore to the writer, and waits until its changes are
// committed.
func (s *Store) do(ctx context.Context, name string, size int, act func(protocol.Micros, *kept) error) error {
	return s.await(ctx, &request{ctx: ctx, name: s.prefix + name, size: size, act: act})
}

// await waits for a request until the context ends. The request may still be served
// after that.
func (s *Store) await(ctx context.Context, r *request) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-s.closed:
		return s.engine.fault(errClosed)
	default:
	}
	return s.engine.await(ctx, r)
}

var (
	_ fleet.Store    = (*Store)(nil)
	_ fleet.Examiner = (*Store)(nil)
)
