// Package leasing grants leases to callers without a session of their own: requests that
// come one by one, from curl or from a script, and perhaps each to another process. Every
// lease has a session to itself, and its ID has all that is needed to renew or release it.
//
// Programs use package fleet, which has one session for all that a process holds, renews
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

// A Manager opens sessions at a store for requests. Several managers over one store share
// all leases.
type Manager struct {
	store   fleet.Store
	self    protocol.Client
	keyInID bool
	life    context.Context
	stop    context.CancelFunc
	running sync.WaitGroup // background work
	callers sync.WaitGroup // calls, and batches that outlive them

	mu          sync.Mutex
	leased      map[leaseID]*session   // those with a lease
	idle        map[idleKey][]*session // those without one, for the next request of the same principal
	queues      map[string]*queue      // by semaphore: local waiters
	released    map[leaseID]time.Time  // when, for releases that are repeated
	attempts    map[string]*attempt    // by key: in progress
	inspections map[string]*inspection // by semaphore that is being inspected: the next inspection, nil if none is needed
	polls       map[string]time.Time   // by semaphore that is polled until the store can decide: until when
}

// An idleKey names idle sessions: they belong to a principal.
type idleKey struct{ semaphore, principal string }

// A Request asks for permits.
type Request struct {
	Semaphore string
	Weight    int64
	Wait      time.Duration   // how long to queue; 0: not at all
	Config    protocol.Config // of a semaphore that is created; zero: it must exist
	Holder    string          // the client's own description of its work
	By        string          // the client's identity, for listings
	Key       string          // the same request of the same principal, sent again, gets the same lease; "": none
	Principal string          // the identity that was authenticated, to which the lease belongs; "": none

	hold bool   // a rate has nothing to hold
	mark string // the digest of the key
}

// A Lease is permits that were granted.
type Lease struct {
	Semaphore string
	ID        string // with which any manager renews and releases it
	Weight    int64
	Fence     protocol.Fence
	TTL       time.Duration // after which it is lost, unless it is renewed
	Left      time.Duration // how long it is surely held
	InUse     int64         // permits of the semaphore, this one's included
	Capacity  int64         // of the semaphore
	Window    time.Duration // of a rate; 0 for others
}

// An Option configures a manager.
type Option func(*Manager)

// KeyInID makes IDs with which another process can use a lease through a service. It is
// for processes that acquire for themselves, and not for servers.
func KeyInID(m *Manager) { m.keyInID = true }

// New returns a manager over a store, which is not closed with it.
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

// Close rejects waiters, cancels their tickets, and releases what [Manager.Hold] holds.
// Other leases live on until they expire. It waits for a store that does not respond, and
// for callers that do not return, for a limited time only.
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

// begin counts a call until it is done, unless the manager is closed.
func (m *Manager) begin(op, semaphore string) (done func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life.Err() != nil {
		return nil, m.closed(op, semaphore)
	}
	m.callers.Add(1)
	return m.callers.Done, nil
}

// start runs a function in a goroutine, unless the manager is closed.
func (m *Manager) start(work func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life.Err() == nil {
		m.running.Go(work)
	}
}

// Acquire waits for permits in the order of arrival. It fails with ErrFull, or ErrTimeout
// if there was a wait, with ErrQueueFull, ErrTooLarge, ErrDraining, or ErrUnavailable if the
// store does not respond; and with the context's cause.
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

// acquire starts again if its session is lost: an idle one may have expired, and all are
// lost when a semaphore is deleted.
func (m *Manager) acquire(ctx context.Context, r Request) (Lease, error) {
	for over := time.Now().Add(r.Wait); ; {
		one, err := m.obtain(ctx, r)
		if err != nil {
			return Lease{}, err
		}
		if r.hold && one.config.Kind == protocol.Rate {
			m.keepIdle(one)
			return Lease{}, &sema.Error{Op: "hold", Name: r.Semaphore, Err: sema.ErrInvalid, Detail: "it is a rate, whose permits return by time; acquire it instead"}
		}
		one.ticket = max(one.ticket+1, protocol.Ticket(micros()))
		lease, err := one.wait(ctx, r, protocol.Op{
			Verb: protocol.Acquire, Ticket: one.ticket, Weight: r.Weight, Wait: protocol.Micros(r.Wait.Microseconds()), Try: r.Wait == 0, Details: protocol.Details{Holder: r.Holder, By: r.By, Key: r.mark},
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

// Renew keeps a principal's lease for another TTL. It fails with ErrLost if there is no
// such lease of that principal.
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
	one, err := m.find(ctx, principal, h)
	if err != nil {
		return Lease{}, err
	}
	return one.renew(ctx, h)
}

// Release returns a principal's lease. It fails with ErrLost if there is no such lease of
// that principal. A release that is repeated at the same manager within a minute is no
// error.
func (m *Manager) Release(ctx context.Context, principal, semaphore, id string) error {
	_, err := m.ReleaseFirst(ctx, principal, semaphore, id)
	return err
}

// ReleaseFirst is [Manager.Release]. It reports whether this call released the lease, and
// not an earlier one.
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
	one, err := m.find(ctx, principal, h)
	if err != nil {
		return false, err
	}
	return one.release(ctx, h)
}

// Hold acquires a lease and renews it until ctx ends or the manager is closed; then it is
// released at once. notify is called with the lease, and each time it is renewed. Hold fails
// if no lease was granted, or if it was lost.
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

// detached returns a context for a last batch, also when the manager is closed.
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
	switch bad, unmakable := fleet.CheckMeta(r.Holder), r.Config.Check(); {
	case bad != nil:
		return invalid("holder: " + bad.Error())
	case unmakable != nil && r.Config != protocol.Config{}:
		return invalid(unmakable.Error())
	case r.Weight < 1 || r.Weight > protocol.MaxCapacity:
		return invalid(fmt.Sprintf("want a weight from 1 to %d", int64(protocol.MaxCapacity)))
	case r.Wait < 0:
		return invalid("want a wait of 0 or more")
	}
	return nil
}

func (m *Manager) closed(op, semaphore string) error {
	return &sema.Error{Op: op, Name: semaphore, Err: sema.ErrClosed}
}

// jittered returns about the same duration, so that many sessions do not send at once.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }
