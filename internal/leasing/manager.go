// Package leasing grants leases to callers that have no session of their own: single
// requests, from curl or a script, each of which may reach a different process. Every lease has
// its own session, and its ID contains all that is needed to renew or release it.
//
// Programs use package fleet, which has one session for all permits of a process, renews
// it, and batches concurrent operations.
package leasing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Manager opens sessions at a store for requests. Managers of the same store share all
// leases.
type Manager struct {
	store   fleet.Store
	self    protocol.Client
	keyInID bool
	life    context.Context
	stop    context.CancelFunc
	running sync.WaitGroup // background work
	callers sync.WaitGroup // calls, and batches that outlive them

	mu          sync.Mutex
	leased      map[leaseID]*session   // sessions with a lease
	idle        map[idleKey][]*session // sessions without one, for the next request of the same principal
	queues      map[string]*queue      // by semaphore: local waiters
	released    map[leaseID]time.Time  // time of the release, for repeated releases
	attempts    map[string]*attempt    // by idempotency key: running requests
	inspections map[string]*inspection // by semaphore that is being inspected: the next inspection, nil if none is needed
	polls       map[string]time.Time   // by semaphore that is polled until the store can decide: the end of polling
}

// An idleKey selects idle sessions: they belong to a principal.
type idleKey struct{ semaphore, principal string }

// A Request is a request for permits.
type Request struct {
	Semaphore string
	Weight    int64
	Wait      time.Duration   // how long to queue; 0: not at all, unless Unbounded
	Unbounded bool            // queue for as long as the context allows; Wait is 0
	Config    protocol.Config // to create the semaphore with; zero: it must exist
	Holder    string          // the client's own description of its work
	By        string          // the client's identity, for listings
	Key       string          // idempotency key: a repeated request of the same principal gets the same lease; "": none
	Principal string          // authenticated identity, to which the lease belongs; "": none

	hold bool   // for Hold: fail for a rate, which has nothing to hold
	mark string // digest of Key
}

// A Lease describes granted permits.
type Lease struct {
	Semaphore string
	ID        string // with which any manager renews or releases it
	Weight    int64
	Slots     protocol.Slots // numbers of the permits; "" if the semaphore does not number them
	Fence     protocol.Fence
	TTL       time.Duration // after which the lease is lost unless it is renewed
	Left      time.Duration // how long it is certainly held
	InUse     int64         // permits of the semaphore in use, including this lease
	Capacity  int64         // of the semaphore
	Window    time.Duration // of a rate; 0 for others
}

// An Option configures a manager.
type Option func(*Manager)

// KeyInID makes a manager create IDs with which another process can use a lease through a
// service. It is for processes that acquire for themselves, not for servers.
func KeyInID(m *Manager) { m.keyInID = true }

// New returns a manager of a store. Closing the manager does not close the store.
func New(store fleet.Store, opts ...Option) *Manager {
	m := &Manager{
		store: store, self: protocol.NewClient(Service),
		leased: map[leaseID]*session{}, idle: map[idleKey][]*session{}, queues: map[string]*queue{},
		released: map[leaseID]time.Time{}, attempts: map[string]*attempt{}, inspections: map[string]*inspection{},
		polls: map[string]time.Time{},
	}
	for _, set := range opts {
		set(m)
	}
	if m.keyInID {
		m.self.Kind = "command"
	}
	m.life, m.stop = context.WithCancel(context.Background())
	m.start(m.listen)
	m.start(m.expire)
	return m
}

// Close rejects waiters, cancels their tickets, and releases the leases of [Manager.Hold].
// Other leases stay valid until they expire. It waits only for a limited time for a store
// that does not respond, and for callers that do not return.
func (m *Manager) Close() {
	m.mu.Lock()
	m.stop()
	m.mu.Unlock()
	m.running.Wait()
	gone := make(chan struct{})
	go func() { m.callers.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(storeTimeout):
	}
}

// begin registers a call until done is called. It fails if the manager is closed.
func (m *Manager) begin(op, semaphore string) (done func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life.Err() != nil {
		return nil, m.closed(op, semaphore)
	}
	m.callers.Add(1)
	return m.callers.Done, nil
}

// start runs work in a goroutine, unless the manager is closed.
func (m *Manager) start(work func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life.Err() == nil {
		m.running.Go(work)
	}
}

// Acquire waits for permits in the order of arrival. It fails with ErrFull (ErrTimeout if the
// request has a wait), ErrQueueFull, ErrTooLarge or ErrDraining. It fails with ErrUnavailable
// if the store does not respond, and with the context's cause if ctx ends.
func (m *Manager) Acquire(ctx context.Context, r Request) (Lease, error) {
	if err := r.check(); err != nil {
		return Lease{}, err
	}
	done, err := m.begin("acquire", r.Semaphore)
	if err != nil {
		return Lease{}, err
	}
	defer done()
	if r.Key != "" {
		return m.acquireOnce(ctx, r)
	}
	return m.acquire(ctx, r)
}

// acquire acquires with a session, and starts again if the session is lost: an idle one may
// have expired, and deleting a semaphore ends all sessions.
func (m *Manager) acquire(ctx context.Context, r Request) (Lease, error) {
	for over := time.Now().Add(r.Wait); ; {
		sess, err := m.obtain(ctx, r)
		if err != nil {
			return Lease{}, err
		}
		if r.hold && sess.config.Kind == protocol.Rate {
			m.keepIdle(sess)
			return Lease{}, &sema.Error{Op: "hold", Name: r.Semaphore, Err: sema.ErrInvalid, Detail: "the semaphore is a rate, whose permits return by time; use acquire"}
		}
		sess.ticket = max(sess.ticket+1, protocol.Ticket(micros()))
		lease, err := sess.wait(ctx, r, protocol.Op{
			Verb: protocol.Acquire, Ticket: sess.ticket, Weight: r.Weight, Wait: protocol.Micros(r.Wait.Microseconds()), Try: r.Wait == 0 && !r.Unbounded, Details: &protocol.Details{Holder: r.Holder, By: r.By, Key: r.mark},
		})
		if !errors.Is(err, sema.ErrLost) {
			return lease, err
		}
		m.dropIdle(idleKey{r.Semaphore, r.Principal})
		if r.Wait > 0 {
			r.Wait = max(time.Until(over), 1)
		}
	}
}

// Renew extends a principal's lease by a TTL. It fails with ErrLost if the principal has no
// such lease.
func (m *Manager) Renew(ctx context.Context, principal, semaphore, id string) (Lease, error) {
	h, err := parse("renew", semaphore, id)
	if err != nil {
		return Lease{}, err
	}
	done, err := m.begin("renew", semaphore)
	if err != nil {
		return Lease{}, err
	}
	defer done()
	sess, err := m.find(ctx, principal, h)
	if err != nil {
		return Lease{}, err
	}
	return sess.renew(ctx, h)
}

// Release releases a principal's lease. It fails with ErrLost if the principal has no such
// lease. A release that is repeated at the same manager within a minute is no error.
func (m *Manager) Release(ctx context.Context, principal, semaphore, id string) error {
	_, err := m.ReleaseFirst(ctx, principal, semaphore, id)
	return err
}

// ReleaseFirst releases like [Manager.Release]. It reports whether this call released the
// lease, and not an earlier one.
func (m *Manager) ReleaseFirst(ctx context.Context, principal, semaphore, id string) (first bool, err error) {
	done, err := m.begin("release", semaphore)
	if err != nil {
		return false, err
	}
	defer done()
	return m.release(ctx, principal, semaphore, id)
}

func (m *Manager) release(ctx context.Context, principal, semaphore, id string) (first bool, err error) {
	h, err := parse("release", semaphore, id)
	if err != nil || m.wasReleased(h) {
		return false, err
	}
	sess, err := m.find(ctx, principal, h)
	if err != nil {
		return false, err
	}
	return sess.release(ctx, h)
}

// Hold acquires a lease and renews it until ctx ends or the manager is closed; then it
// releases the lease immediately. It calls notify with the lease, and after each renewal.
// Hold fails if no lease was granted, or if it was lost.
func (m *Manager) Hold(ctx context.Context, r Request, notify func(Lease)) error {
	done, err := m.begin("hold", r.Semaphore)
	if err != nil {
		return err
	}
	defer done()
	r.hold = true
	lease, err := m.Acquire(ctx, r)
	if err != nil {
		return err
	}
	notify(lease)
	held := time.Now().Add(lease.Left)
	for {
		select {
		case <-ctx.Done():
			return m.releaseDetached(r, lease.ID)
		case <-m.life.Done():
			return errors.Join(m.closed("hold", r.Semaphore), m.releaseDetached(r, lease.ID))
		case <-time.After(jittered(lease.TTL / 3)):
		}
		switch renewed, err := m.Renew(ctx, r.Principal, r.Semaphore, lease.ID); {
		case err == nil:
			held = time.Now().Add(renewed.Left)
			notify(renewed)
		case errors.Is(err, sema.ErrLost) || time.Now().After(held):
			return err
		}
	}
}

// releaseDetached releases a lease whose request has ended.
func (m *Manager) releaseDetached(r Request, id string) error {
	ctx, cancel := m.detached()
	defer cancel()
	_, err := m.release(ctx, r.Principal, r.Semaphore, id)
	return err
}

// detached returns a context for a last batch, which is also valid after Close.
func (m *Manager) detached() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(m.life), storeTimeout)
}

func (r Request) check() error {
	if err := fleet.CheckName(r.Semaphore); err != nil {
		return err
	}
	invalid := func(detail string) error {
		return &sema.Error{Op: "acquire", Name: r.Semaphore, Weight: r.Weight, Err: sema.ErrInvalid, Detail: detail}
	}
	var configErr error
	if r.Config != (protocol.Config{}) {
		configErr = r.Config.Check()
	}
	switch metaErr := fleet.CheckMeta(r.Holder); {
	case metaErr != nil:
		return invalid("holder: " + metaErr.Error())
	case configErr != nil:
		return invalid(configErr.Error())
	case r.Weight < 1 || r.Weight > protocol.MaxCapacity:
		return invalid(fmt.Sprintf("want a weight from 1 to %d", int64(protocol.MaxCapacity)))
	case r.Wait < 0:
		return invalid("want a wait of 0 or more")
	case r.Wait > 0 && r.Unbounded:
		return invalid("want a wait or no bound, not both")
	}
	return nil
}

func (m *Manager) closed(op, semaphore string) error {
	return &sema.Error{Op: op, Name: semaphore, Err: sema.ErrClosed}
}

// jittered returns d ± 10 %, so that sessions do not send in step.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }
