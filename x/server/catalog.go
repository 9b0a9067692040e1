package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A catalog is the store of the service. It counts the names of semaphores for the
// accounts that have created them, shares concurrent snapshots of one semaphore, logs
// failures, and bounds every operation but Open, Apply and Listen by [storeTimeout]:
// then it fails with [sema.ErrUnavailable].
type catalog struct {
	fleet.Store
	service *service

	mu     sync.Mutex
	names  map[string]*entry
	looks  map[string]*look // snapshots that are asked for
	closed bool
	work   sync.WaitGroup // snapshots that are being taken; added to while mu is held and closed is false
}

// An entry is a semaphore that is known to exist.
type entry struct {
	account *account     // which has created it; nil: not known
	used    atomic.Int64 // when it was last opened, or a batch came; nanoseconds since 1970

	// Held for reading while the semaphore is used, for writing while it is deleted
	// for being idle: a lease must not be granted in between.
	mu   sync.RWMutex
	gone bool
}

func newCatalog(store fleet.Store, s *service) *catalog {
	return &catalog{Store: store, service: s, names: map[string]*entry{}, looks: map[string]*look{}}
}

// use returns the entry of a semaphore, locked for reading, or nil if it is not
// known.
func (c *catalog) use(name string) *entry {
	for {
		c.mu.Lock()
		e := c.names[name]
		c.mu.Unlock()
		if e == nil {
			return nil
		}
		e.mu.RLock()
		if !e.gone {
			e.used.Store(time.Now().UnixNano())
			return e
		}
		e.mu.RUnlock()
	}
}

// Open opens a session, and creates the semaphore if the caller may create another.
func (c *catalog) Open(ctx context.Context, name string, config protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	if e := c.use(name); e != nil {
		defer e.mu.RUnlock()
		session, stored, err := c.Store.Open(ctx, name, config, by)
		return session, stored, c.failed("open", name, err)
	}
	one, err := c.creator(ctx, name, config, by)
	if err != nil {
		return 0, protocol.Config{}, c.failed("open", name, err)
	}
	session, stored, err := c.Store.Open(ctx, name, config, by)
	switch {
	case err == nil && !c.add(name, one), err != nil && one != nil:
		c.give(one)
	}
	return session, stored, c.failed("open", name, err)
}

// creator takes the place of a name for the caller, if the semaphore does not exist
// and would be created. It returns nil if it exists.
func (c *catalog) creator(ctx context.Context, name string, config protocol.Config, by protocol.Opener) (*account, error) {
	if by.MustExist || config.Check() != nil {
		return nil, nil // it creates nothing
	}
	_, err := c.inspect(ctx, name)
	switch {
	case err == nil:
		return nil, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case c.service.declared.exactly(name):
		return nil, nil
	}
	one := c.service.accountOf(ctx)
	return one, c.service.accounts.take(one, names)
}

func (c *catalog) give(one *account) {
	if one != nil {
		c.service.accounts.give(one, names)
	}
}

// add notes a semaphore that exists. It reports whether it was not known.
func (c *catalog) add(name string, one *account) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names[name] != nil {
		return false
	}
	if one == nil && !c.service.declared.exactly(name) {
		if one = c.service.ownerOf(name); one != nil {
			one.used[names].Add(1)
			c.service.accounts.used[names].Add(1)
		}
	}
	e := &entry{account: one}
	e.used.Store(time.Now().UnixNano())
	c.names[name] = e
	return true
}

// ownerOf returns the account of the token with the longest prefix of a name, nil
// if there is none: for semaphores that existed before the server was started.
func (s *service) ownerOf(name string) *account {
	owner, longest := "", 0
	for _, t := range s.tokens.Load().all {
		if strings.HasPrefix(name, t.Prefix) && len(t.Prefix) > longest {
			owner, longest = "token:"+t.Name, len(t.Prefix)
		}
	}
	if owner == "" {
		return nil
	}
	return s.accounts.of(owner)
}

// remove forgets a semaphore that was deleted.
func (c *catalog) remove(name string) {
	c.mu.Lock()
	e := c.names[name]
	delete(c.names, name)
	c.mu.Unlock()
	if e != nil {
		c.give(e.account)
	}
}

// Apply does what a batch asks.
func (c *catalog) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if e := c.use(name); e != nil {
		defer e.mu.RUnlock()
	}
	reply, err := c.Store.Apply(ctx, name, b)
	if c.service.watches.watched.Load() > 0 {
		c.service.watches.applied(name)
	}
	return reply, c.failed("apply", name, err)
}

// Administer implements [fleet.Store].
func (c *catalog) Administer(ctx context.Context, name string, command fleet.Command) error {
	err := withinTimeout(ctx, func(ctx context.Context) error { return c.Store.Administer(ctx, name, command) })
	var gone *outage
	if command.Configure != nil && errors.As(err, &gone) {
		// Stores reject a configuration by an error of their own. One that replies is not
		// unavailable.
		if _, alive := c.inspect(ctx, name); alive == nil {
			err = gone.cause
		}
	}
	if err == nil && command.Delete || errors.Is(err, fs.ErrNotExist) && command.Revoke == nil {
		c.remove(name)
	}
	return c.failed("administer", name, err)
}

// inspect reads one semaphore. [catalog.Inspect] shares what it returns.
func (c *catalog) inspect(ctx context.Context, name string) (snapshot protocol.Snapshot, err error) {
	err = withinTimeout(ctx, func(ctx context.Context) (err error) { snapshot, err = c.Store.Inspect(ctx, name); return err })
	return snapshot, err
}

// List implements [fleet.Store].
func (c *catalog) List(ctx context.Context, q protocol.ListQuery) (found []protocol.Summary, err error) {
	err = withinTimeout(ctx, func(ctx context.Context) (err error) { found, err = c.Store.List(ctx, q); return err })
	return found, c.failed("list", q.Prefix, err)
}

// Ping implements [fleet.Examiner].
func (c *catalog) Ping(ctx context.Context) (clock time.Time, err error) {
	e, ok := c.Store.(fleet.Examiner)
	if !ok {
		return time.Time{}, fmt.Errorf("ping the store: %w", errors.ErrUnsupported)
	}
	err = withinTimeout(ctx, func(ctx context.Context) (err error) { clock, err = e.Ping(ctx); return err })
	return clock, err
}

// Examine implements [fleet.Examiner]. It is many operations, and not bounded.
func (c *catalog) Examine(ctx context.Context) ([]fleet.Finding, error) {
	e, ok := c.Store.(fleet.Examiner)
	if !ok {
		return nil, fmt.Errorf("examine the store: %w", errors.ErrUnsupported)
	}
	return e.Examine(ctx)
}

// Close closes the store when no snapshot is being taken any more.
func (c *catalog) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
	return c.Store.Close()
}

// failed logs an error of the store, if it is about the store and not about the
// request, and returns it.
func (c *catalog) failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	for _, expected := range []error{
		sema.ErrInvalid, sema.ErrClosed, sema.ErrTooLarge, fs.ErrNotExist, fs.ErrPermission, protocol.ErrConflict, protocol.ErrVersion, errors.ErrUnsupported,
		context.Canceled,
	} {
		if errors.Is(err, expected) {
			return err
		}
	}
	c.service.journal.error("store", "the store failed", "op", op, "semaphore", name, "error", err)
	return err
}

// lookWithin bounds a snapshot whose callers may all have gone.
const lookWithin = 30 * time.Second

// A look is a snapshot that is being taken, and the next one.
type look struct {
	running bool
	next    *shared // of those who came while it is being taken; nil: there is none
}

// A shared is a snapshot for several callers. They only read it.
type shared struct {
	done     chan struct{}
	snapshot protocol.Snapshot
	err      error
}

// Inspect returns a semaphore as it is. Callers that come while a snapshot of it is
// being taken share the next one, so that any number of them costs the store one at
// a time, and no memory each.
func (c *catalog) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return protocol.Snapshot{}, errLeaving
	}
	l := c.looks[name]
	if l == nil {
		l = &look{}
		c.looks[name] = l
	}
	mine := l.next
	if mine == nil {
		mine = &shared{done: make(chan struct{})}
		l.next = mine
	}
	if !l.running {
		l.running = true
		c.work.Go(func() { c.take(name, l) })
	}
	c.mu.Unlock()
	select {
	case <-mine.done:
		return mine.snapshot, c.failed("inspect", name, mine.err)
	case <-ctx.Done():
		return protocol.Snapshot{}, context.Cause(ctx)
	}
}

// take takes snapshots while callers wait for one.
func (c *catalog) take(name string, l *look) {
	for {
		c.mu.Lock()
		now := l.next
		l.next = nil
		if now == nil {
			delete(c.looks, name)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(c.service.life, lookWithin)
		now.snapshot, now.err = c.inspect(ctx, name)
		cancel()
		close(now.done)
		if errors.Is(now.err, sema.ErrUnavailable) {
			c.share(l, now.err)
		}
	}
}

// share fails those who wait for the next snapshot: they have waited while the store
// did not reply, and need not wait for another timeout.
func (c *catalog) share(l *look, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.next != nil {
		l.next.err = err
		close(l.next.done)
		l.next = nil
	}
}

// storeTimeout bounds one operation of the store, except those of acquires, which
// internal/leasing bounds.
const storeTimeout = 5 * time.Second

// withinTimeout does one operation within [storeTimeout], and tells an outage from a result.
func withinTimeout(ctx context.Context, operation func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := operation(within)
	if err == nil || ctx.Err() != nil || isResult(err) {
		return err
	}
	return &outage{err}
}

// isResult reports whether a store that fails so has replied.
func isResult(err error) bool {
	for _, result := range []error{
		fs.ErrNotExist, fs.ErrPermission, errors.ErrUnsupported, protocol.ErrConflict, protocol.ErrVersion, sema.ErrInvalid, sema.ErrClosed, sema.ErrUnavailable,
	} {
		if errors.Is(err, result) {
			return true
		}
	}
	return false
}

// An outage is a failure of the store. It is [sema.ErrUnavailable], with the text of the
// cause.
type outage struct{ cause error }

func (o *outage) Error() string        { return o.cause.Error() }
func (o *outage) Unwrap() error        { return o.cause }
func (o *outage) Is(target error) bool { return target == sema.ErrUnavailable }

// snapshot returns a semaphore as it is.
func (s *service) snapshot(ctx context.Context, name string) (protocol.Snapshot, error) {
	snapshot, err := s.store.Inspect(ctx, name)
	return snapshot, named("inspect", name, err)
}

// named adds the name of the semaphore to an error that says that it does not exist.
func named(op, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &sema.Error{Op: op, Name: name, Err: missing{}}
	}
	return err
}

// missing is [fs.ErrNotExist] of a semaphore.
type missing struct{}

func (missing) Error() string { return "no such semaphore; an acquire with a capacity creates it" }
func (missing) Unwrap() error { return fs.ErrNotExist }
