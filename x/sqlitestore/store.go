package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Store gives one client access to a file. The stores of one process share the file.
type Store struct {
	shared *sharedFile
	prefix string
	once   sync.Once
	closed chan struct{}
}

// Options configures the access to a file.
type Options struct {
	// Prefix is prepended to the names of semaphores, so that clients can share a file
	// without sharing semaphores. Default: none.
	Prefix string
	// Normal selects synchronous=normal: requests do not wait for the disk. Acknowledged
	// operations survive a crash of the process, but the last ones may be lost on a
	// power failure. Default: synchronous=full.
	Normal bool
	// ReadOnly selects [OpenReader], which [fleet.Open] calls for mode=ro. Open rejects
	// it.
	ReadOnly bool
}

// Open opens a file, and creates it if it does not exist. Only one process at a time can
// have a file open: otherwise Open fails with [ErrOwned].
func Open(path string, o Options) (*Store, error) {
	if err := o.check(path); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, invalid("%s: ReadOnly is not supported by Open; use OpenReader", path)
	}
	e, err := share(path, o.Normal)
	if err != nil {
		return nil, err
	}
	return &Store{shared: e, prefix: o.Prefix, closed: make(chan struct{})}, nil
}

// Open implements [fleet.Store].
func (s *Store) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	var (
		session protocol.Session
		config  protocol.Config
	)
	err := s.do(ctx, name, 1, func(now protocol.Micros, k *entry) (err error) {
		if k.state == nil && by.MustExist {
			return withName(name, fs.ErrNotExist)
		}
		if k.state == nil {
			if err = k.create(now, c); err != nil {
				return withName(name, err)
			}
		}
		session, config, err = k.state.Open(now, by, c.Protocol)
		return withName(name, err)
	})
	if err != nil {
		return 0, protocol.Config{}, err
	}
	return session, config, nil
}

// Apply implements [fleet.Store].
func (s *Store) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	r, _ := s.shared.batches.Get().(*batchRequest)
	if r == nil {
		r = newBatchRequest()
	}
	r.ops = append(r.ops[:0], b.Ops...) // a caller whose context ended may reuse them before they are applied
	b.Ops = r.ops
	r.batch, r.ctx, r.name, r.size = b, ctx, s.prefix+name, 1+len(b.Ops)
	err := s.await(ctx, &r.request)
	if !r.over {
		return protocol.Reply{}, err // the writer may still use the request
	}
	reply := r.reply
	r.forget()
	s.shared.batches.Put(r)
	if err != nil {
		return protocol.Reply{}, err
	}
	return reply, nil
}

// A batchRequest is the request of [Store.Apply], the most frequent one. Requests that are over
// are reused.
type batchRequest struct {
	request
	batch protocol.Batch
	ops   []protocol.Op
	reply protocol.Reply
}

func newBatchRequest() *batchRequest {
	r := &batchRequest{}
	r.act, r.ended = r.apply, make(chan error, 1)
	return r
}

// apply implements the act of the request.
func (r *batchRequest) apply(now protocol.Micros, k *entry) error {
	r.reply = protocol.Reply{}
	if k.state == nil {
		r.reply.Status = protocol.Unknown
		return nil
	}
	r.reply = k.state.Apply(now, r.batch)
	return nil
}

// forget drops what a request that is over refers to.
func (r *batchRequest) forget() {
	clear(r.ops)
	if cap(r.ops) > maxSize {
		r.ops = nil
	}
	r.request = request{act: r.act, ended: r.ended}
	r.batch, r.reply = protocol.Batch{}, protocol.Reply{}
}

// Inspect implements [fleet.Store].
func (s *Store) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	var snapshot protocol.Snapshot
	err := s.do(ctx, name, 1, func(now protocol.Micros, k *entry) error {
		if k.state == nil {
			return withName(name, fs.ErrNotExist)
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
	return s.do(ctx, name, 1, func(now protocol.Micros, k *entry) error {
		switch {
		case k.state == nil:
			return withName(name, fs.ErrNotExist)
		case c.Configure != nil:
			_, err := k.state.Configure(now, *c.Configure)
			return withName(name, err)
		case c.Revoke != nil:
			if !k.state.Revoke(now, c.Revoke.Lease, c.Revoke.AtOnce, c.Revoke.Note()) {
				return withName(name, fmt.Errorf("lease %d: %w", c.Revoke.Lease, fs.ErrNotExist))
			}
		case c.Delete:
			if err := k.state.CheckVersion(c.DeleteVersion); err != nil {
				return withName(name, err)
			}
			k.delete()
		}
		return nil
	})
}

// Listen implements [fleet.Store].
func (s *Store) Listen(ctx context.Context, instance string, notify func(name string)) error {
	l := s.shared.listeners.add(instance, s.prefix)
	defer s.shared.listeners.remove(instance, l)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.closed:
			return s.shared.wrap(errClosed)
		case <-l.ready:
		}
		for _, name := range s.shared.listeners.take(l) {
			notify(name)
		}
	}
}

// Close implements [fleet.Store]. It closes the file if no other store of this
// process uses it.
func (s *Store) Close() (err error) {
	s.once.Do(func() {
		close(s.closed)
		err = s.shared.release()
	})
	return err
}

// withName adds the name of the semaphore to an error.
func withName(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("semaphore %q: %w", name, err)
}

var errClosed = errors.New("the store is closed")

// do sends an operation on a semaphore to the writer, and waits until its changes are
// committed.
func (s *Store) do(ctx context.Context, name string, size int, act func(protocol.Micros, *entry) error) error {
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
		return s.shared.wrap(errClosed)
	default:
	}
	return s.shared.await(ctx, r)
}

var (
	_ fleet.Store    = (*Store)(nil)
	_ fleet.Examiner = (*Store)(nil)
)
