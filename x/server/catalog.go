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

// A catalog wraps the store of the service. It counts semaphore names for the accounts that
// created them, shares concurrent snapshots of one semaphore, and logs failures. It bounds
// every operation except Open, Apply and Listen by [storeTimeout], and fails with
// [sema.ErrUnavailable] after that.
type catalog struct {
	fleet.Store
	service *service

	mu      sync.Mutex
	names   map[string]*entry
	flights map[string]*flight // snapshots in progress, by semaphore
	closed  bool

	failedSince atomic.Int64 // when the store failed first without a success since, in nanoseconds since 1970; 0: it works

	work sync.WaitGroup // snapshots in progress; incremented only while mu is held and closed is false
}

// An entry is a semaphore that is known to exist.
type entry struct {
	account *account             // the account that created it; nil: unknown
	pace    atomic.Pointer[pace] // nil: nothing was granted
	used    atomic.Int64         // when it was last opened or a batch was applied; nanoseconds since 1970

	// mu is read-locked while the semaphore is used, and locked while the semaphore is
	// deleted for being idle: no lease must be granted in between.
	mu   sync.RWMutex
	gone bool
}

func newCatalog(store fleet.Store, s *service) *catalog {
	return &catalog{Store: store, service: s, names: map[string]*entry{}, flights: map[string]*flight{}}
}

// use returns the entry of a semaphore, read-locked, or nil if the name is unknown.
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

// Open implements [fleet.Store]. It creates the semaphore only if the caller's limit allows
// another name.
func (c *catalog) Open(ctx context.Context, name string, config protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	if e := c.use(name); e != nil {
		defer e.mu.RUnlock()
		session, stored, err := c.Store.Open(ctx, name, config, by)
		if err != nil {
			return 0, stored, c.failed("open", name, err)
		}
		return session, stored, nil
	}
	one, err := c.creator(ctx, name, config, by)
	if err != nil {
		return 0, protocol.Config{}, c.failed("open", name, err)
	}
	session, stored, err := c.Store.Open(ctx, name, config, by)
	if err != nil {
		c.put(one)
		return 0, stored, c.failed("open", name, err)
	}
	if !c.add(name, one) {
		c.put(one)
	}
	return session, stored, nil
}

// creator counts a name for the caller if the semaphore does not exist and would be
// created. It returns nil if no name is to be counted.
func (c *catalog) creator(ctx context.Context, name string, config protocol.Config, by protocol.Opener) (*account, error) {
	if by.MustExist || config.Check() != nil {
		return nil, nil // Open creates nothing
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

func (c *catalog) put(one *account) {
	if one != nil {
		c.service.accounts.put(one, names)
	}
}

// add records a semaphore that exists. It reports whether the name was unknown.
func (c *catalog) add(name string, one *account) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names[name] != nil {
		return false
	}
	if one == nil && !c.service.declared.exactly(name) {
		if one = c.service.ownerOf(name); one != nil {
			c.service.accounts.add(one, names)
		}
	}
	e := &entry{account: one}
	e.used.Store(time.Now().UnixNano())
	c.names[name] = e
	return true
}

// ownerOf returns the account of the token with the longest prefix of a name, or nil. It is
// for semaphores that existed before the server was started.
func (s *service) ownerOf(name string) *account {
	if owner := s.prefixOwner(name); owner != "" {
		return s.accounts.of(owner)
	}
	return nil
}

// prefixOwner returns the principal of that token; "": there is none.
func (s *service) prefixOwner(name string) (owner string) {
	longest := 0
	for _, t := range s.tokens.Load().all {
		if strings.HasPrefix(name, t.Prefix) && len(t.Prefix) > longest {
			owner, longest = "token:"+t.Name, len(t.Prefix)
		}
	}
	return owner
}

// ownerName returns the principal to which a semaphore counts: its creator, or the token with the
// longest prefix of its name; "": unknown.
func (s *service) ownerName(name string) string {
	s.store.mu.Lock()
	e := s.store.names[name]
	s.store.mu.Unlock()
	if e != nil && e.account != nil {
		return e.account.principal
	}
	return s.prefixOwner(name)
}

// known reports whether a semaphore is known to exist.
func (c *catalog) known(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names[name] != nil
}

// remove removes a semaphore that was deleted.
func (c *catalog) remove(name string) {
	c.mu.Lock()
	e := c.names[name]
	delete(c.names, name)
	c.mu.Unlock()
	if e != nil {
		c.put(e.account)
	}
}

// Apply implements [fleet.Store].
func (c *catalog) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	e := c.use(name)
	if e != nil {
		defer e.mu.RUnlock()
	}
	sent := time.Now()
	reply, err := c.Store.Apply(ctx, name, b)
	if c.service.watches.watched.Load() > 0 {
		c.service.watches.applied(name)
	}
	if err != nil {
		c.service.meter.Failed(name, &b)
		return reply, c.failed("apply", name, err)
	}
	c.replied()
	c.service.meter.Applied(name, &b, &reply, sent, time.Now())
	if e != nil {
		e.observe(&reply)
	}
	return reply, nil
}

// Administer implements [fleet.Store].
func (c *catalog) Administer(ctx context.Context, name string, command fleet.Command) error {
	err := withinTimeout(ctx, func(ctx context.Context) error { return c.Store.Administer(ctx, name, command) })
	var gone *outage
	if command.Configure != nil && errors.As(err, &gone) {
		// Stores reject a configuration with their own errors. If the store replies, err was a
		// rejection and not an outage.
		if _, alive := c.inspect(ctx, name); alive == nil {
			err = gone.cause
		}
	}
	if err == nil && command.Delete {
		c.service.meter.Deleted(name, time.Now())
	}
	if err == nil && command.Delete || errors.Is(err, fs.ErrNotExist) && command.Revoke == nil {
		c.remove(name)
	}
	return c.failed("administer", name, err)
}

// inspect reads one semaphore from the store. [catalog.Inspect] shares the result.
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
	if err == nil {
		c.replied()
	}
	return clock, err
}

// Examine implements [fleet.Examiner]. It runs many operations and has no timeout.
func (c *catalog) Examine(ctx context.Context) ([]fleet.Finding, error) {
	e, ok := c.Store.(fleet.Examiner)
	if !ok {
		return nil, fmt.Errorf("examine the store: %w", errors.ErrUnsupported)
	}
	return e.Examine(ctx)
}

// Close implements [fleet.Store]. It waits for snapshots in progress first.
func (c *catalog) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
	return c.Store.Close()
}

// failed returns an error of the store. It logs the error if it concerns the store, not the
// request.
func (c *catalog) failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	for _, expected := range []error{
		sema.ErrInvalid, sema.ErrClosed, sema.ErrTooLarge, fs.ErrNotExist, protocol.ErrConflict, protocol.ErrVersion, errors.ErrUnsupported,
		context.Canceled,
	} {
		if errors.Is(err, expected) {
			return err
		}
	}
	c.failedSince.CompareAndSwap(0, time.Now().UnixNano())
	c.service.journal.error("store", "the store failed", "op", op, "semaphore", name, "error", err)
	return err
}

// snapshotTimeout bounds a snapshot, whose callers may all have stopped waiting.
const snapshotTimeout = 30 * time.Second

// A flight is the snapshot of a semaphore in progress, and the next one (single-flight).
type flight struct {
	running bool
	next    *sharedSnapshot // for callers that arrived during the current snapshot; nil: none
}

// A sharedSnapshot is a snapshot for several callers, which must not modify it.
type sharedSnapshot struct {
	done     chan struct{}
	snapshot protocol.Snapshot
	err      error
}

// Inspect implements [fleet.Store]. Callers that arrive while a snapshot is in progress
// share the next one. So any number of callers costs the store one snapshot at a time, and
// no memory per caller.
func (c *catalog) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return protocol.Snapshot{}, errLeaving
	}
	l := c.flights[name]
	if l == nil {
		l = &flight{}
		c.flights[name] = l
	}
	mine := l.next
	if mine == nil {
		mine = &sharedSnapshot{done: make(chan struct{})}
		l.next = mine
	}
	if !l.running {
		l.running = true
		c.work.Go(func() { c.takeSnapshots(name, l) })
	}
	c.mu.Unlock()
	select {
	case <-mine.done:
		return mine.snapshot, c.failed("inspect", name, mine.err)
	case <-ctx.Done():
		return protocol.Snapshot{}, context.Cause(ctx)
	}
}

// takeSnapshots takes snapshots of a semaphore until no caller waits for one.
func (c *catalog) takeSnapshots(name string, l *flight) {
	for {
		c.mu.Lock()
		now := l.next
		l.next = nil
		if now == nil {
			delete(c.flights, name)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(c.service.life, snapshotTimeout)
		now.snapshot, now.err = c.inspect(ctx, name)
		cancel()
		close(now.done)
		if errors.Is(now.err, sema.ErrUnavailable) {
			c.failNext(l, now.err)
		}
	}
}

// failNext fails the callers of the next snapshot: they have already waited while the store
// did not reply, and need not wait for another timeout.
func (c *catalog) failNext(l *flight, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.next != nil {
		l.next.err = err
		close(l.next.done)
		l.next = nil
	}
}

// storeTimeout bounds one store operation. Package internal/leasing bounds those of
// acquires.
const storeTimeout = 5 * time.Second

// withinTimeout runs one operation within [storeTimeout], and returns errors that are not a
// store's reply as an outage.
func withinTimeout(ctx context.Context, operation func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := operation(within)
	if err == nil || ctx.Err() != nil || isResult(err) {
		return err
	}
	if errors.Is(err, fs.ErrPermission) { // %v: a client must not conclude that its own token lacks a verb
		err = fmt.Errorf("the store denies access to this server: %v", err)
	}
	return &outage{err}
}

// isResult reports whether an error is a reply of the store about the request.
func isResult(err error) bool {
	for _, result := range []error{
		fs.ErrNotExist, errors.ErrUnsupported, protocol.ErrConflict, protocol.ErrVersion, sema.ErrInvalid, sema.ErrClosed, sema.ErrUnavailable,
	} {
		if errors.Is(err, result) {
			return true
		}
	}
	return false
}

// An outage is a failure of the store. It is [sema.ErrUnavailable], and has the text of its
// cause.
type outage struct{ cause error }

func (o *outage) Error() string        { return o.cause.Error() }
func (o *outage) Unwrap() error        { return o.cause }
func (o *outage) Is(target error) bool { return target == sema.ErrUnavailable }

// snapshot returns the current state of a semaphore.
func (s *service) snapshot(ctx context.Context, name string) (protocol.Snapshot, error) {
	snapshot, err := s.store.Inspect(ctx, name)
	return snapshot, named("inspect", name, err)
}

// named adds the semaphore's name to an [fs.ErrNotExist] error.
func named(op, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &sema.Error{Op: op, Name: name, Err: notExistError{}}
	}
	return err
}

// notExistError is the [fs.ErrNotExist] of a semaphore.
type notExistError struct{}

func (notExistError) Error() string {
	return "no such semaphore; an acquire with a capacity creates it"
}
func (notExistError) Unwrap() error { return fs.ErrNotExist }
