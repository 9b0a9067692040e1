// Package desk lends permits to those who have no session of their own: requests
// that come one by one, from curl or from a script, and the next one perhaps to
// another process. Each lease has a session to itself, and all that is needed to
// renew or release it is in its name.
//
// Programs use package fleet, which needs one session for all that a process
// holds, renews it, and joins what is asked at the same time.
package desk

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

// A Desk speaks to an engine for those who come. Several desks over one engine
// are as good as one.
type Desk struct {
	store    fleet.Store
	self     protocol.Client
	keyInID  bool
	life     context.Context
	kill     context.CancelFunc
	running  sync.WaitGroup // what the desk does by itself
	callers  sync.WaitGroup // who has come, and what they left to be said

	mu       sync.Mutex
	visits   map[handle]*visit    // with a lease
	idle     map[room][]*visit    // without one, for the next request of the same principal
	lines    map[string]*line     // by semaphore: who waits here
	released map[handle]time.Time // and when, for those who say it twice
	asking   map[string]*inquiry  // by key: what is under way
	sights   map[string]*sight    // by semaphore that is being looked at: the next look, nil if nobody needs one
	polls    map[string]time.Time // by semaphore that is polled until the store can decide: until when
}

// A room is where idle sessions are kept: they belong to a principal.
type room struct{ semaphore, principal string }

// A Request is for permits.
type Request struct {
	Semaphore string
	Weight    int64
	Wait      time.Duration   // for how long, at most; 0: not at all
	Config    protocol.Config // to make the semaphore with, if it is not there; zero: it must be
	Holder    string          // the client's own description of its work
	By        string          // the client's identity, for listings
	Key       string          // the same request of the same principal, sent again, gets the same lease; "": none
	Principal string          // the identity that was authenticated, to which the lease belongs; "": none

	hold bool   // of a rate there is nothing to hold
	mark string // the digest of the key
}

// A Lease is what was granted.
type Lease struct {
	Semaphore string
	ID        string // with which it is renewed and released, by any desk
	Weight    int64
	Fence     protocol.Fence
	TTL       time.Duration // after which it is lost, unless it is renewed
	Left      time.Duration // for how long it is surely held
	InUse     int64         // permits of the semaphore, this one's included
	Capacity  int64         // of the semaphore
	Window    time.Duration // of a rate; 0 for others
}

// An Option changes a desk.
type Option func(*Desk)

// KeyInID makes IDs with which another process can use a lease through a service. It is
// for processes that acquire on their own account, and not for servers.
func KeyInID(d *Desk) { d.keyInID = true }

// New returns a desk over a store, which is not closed with it.
func New(store fleet.Store, opts ...Option) *Desk {
	d := &Desk{
		store: store, self: protocol.NewClient(Service),
		visits: map[handle]*visit{}, idle: map[room][]*visit{}, lines: map[string]*line{},
		released: map[handle]time.Time{}, asking: map[string]*inquiry{}, sights: map[string]*sight{},
		polls: map[string]time.Time{},
	}
	for _, set := range opts {
		set(d)
	}
	if d.keyInID {
		d.self.Kind = "command"
	}
	d.life, d.kill = context.WithCancel(context.Background())
	d.start(d.listen)
	d.start(d.tidy)
	return d
}

// Close ends the desk's work. Those who wait are refused, and are in nobody's way
// any more; what is held by [Desk.Hold] is back. Other leases live on, as long as
// they do. An engine that does not answer, or a caller that does not return, holds
// it up for a while only.
func (d *Desk) Close() {
	d.mu.Lock()
	d.kill()
	d.mu.Unlock()
	d.running.Wait()
	gone := make(chan struct{})
	go func() { d.callers.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(patience):
	}
}

// admit has a call go on until it says that it is done, unless the desk is closed.
func (d *Desk) admit(op, semaphore string) (done func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life.Err() != nil {
		return nil, d.closed(op, semaphore)
	}
	d.callers.Add(1)
	return d.callers.Done, nil
}

// start has something be done, unless the desk is closed.
func (d *Desk) start(work func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life.Err() == nil {
		d.running.Go(work)
	}
}

// Acquire waits for permits, in turn among all who want some. It fails with
// ErrFull, or ErrTimeout if there was a wait, with ErrQueueFull, ErrTooLarge,
// ErrDraining, or ErrUnavailable if the engine does not answer; and with the
// context's cause.
func (d *Desk) Acquire(ctx context.Context, r Request) (Lease, error) {
	if err := r.check(); err != nil {
		return Lease{}, err
	}
	done, err := d.admit("acquire", r.Semaphore)
	if err != nil {
		return Lease{}, err
	}
	defer done()
	if r.Key != "" {
		return d.acquireOnce(ctx, r)
	}
	return d.acquire(ctx, r)
}

// acquire begins anew if its session is lost, as one that was idle may be, and all
// are when a semaphore is deleted.
func (d *Desk) acquire(ctx context.Context, r Request) (Lease, error) {
	for over := time.Now().Add(r.Wait); ; {
		v, err := d.welcome(ctx, r)
		if err != nil {
			return Lease{}, err
		}
		if r.hold && v.config.Kind == protocol.Rate {
			d.park(v)
			return Lease{}, &sema.Error{Op: "hold", Name: r.Semaphore, Err: sema.ErrInvalid, Detail: "it is a rate, whose permits come back by time; acquire it, and there is nothing to hold"}
		}
		v.ticket = max(v.ticket+1, protocol.Ticket(micros()))
		lease, err := v.wait(ctx, r, protocol.Op{
			Verb: protocol.Acquire, Ticket: v.ticket, Weight: r.Weight, Wait: protocol.Micros(r.Wait.Microseconds()), Try: r.Wait == 0, Details: protocol.Details{Holder: r.Holder, By: r.By, Key: r.mark},
		})
		if !errors.Is(err, sema.ErrLost) {
			return lease, err
		}
		d.dismiss(room{r.Semaphore, r.Principal})
		if r.Wait > 0 {
			r.Wait = max(time.Until(over), 1)
		}
	}
}

// Renew keeps a principal's lease for another TTL. It fails with ErrLost if there is
// no such lease of that principal.
func (d *Desk) Renew(ctx context.Context, principal, semaphore, id string) (Lease, error) {
	h, err := parse("renew", semaphore, id)
	if err != nil {
		return Lease{}, err
	}
	done, err := d.admit("renew", semaphore)
	if err != nil {
		return Lease{}, err
	}
	defer done()
	v, err := d.find(ctx, principal, h)
	if err != nil {
		return Lease{}, err
	}
	return v.renew(ctx, h)
}

// Release returns a principal's lease. It fails with ErrLost if there is no such lease
// of that principal. To release a lease again at the same desk is no error, for a
// minute.
func (d *Desk) Release(ctx context.Context, principal, semaphore, id string) error {
	_, err := d.ReleaseFirst(ctx, principal, semaphore, id)
	return err
}

// ReleaseFirst is [Desk.Release]. It reports whether this call released the lease, and
// not an earlier one.
func (d *Desk) ReleaseFirst(ctx context.Context, principal, semaphore, id string) (first bool, err error) {
	done, err := d.admit("release", semaphore)
	if err != nil {
		return false, err
	}
	defer done()
	return d.release(ctx, principal, semaphore, id)
}

func (d *Desk) release(ctx context.Context, principal, semaphore, id string) (first bool, err error) {
	h, err := parse("release", semaphore, id)
	if err != nil || d.wasReleased(h) {
		return false, err
	}
	v, err := d.find(ctx, principal, h)
	if err != nil {
		return false, err
	}
	return v.release(ctx, h)
}

// Hold acquires a lease and keeps it until ctx ends, or the desk is closed; then it
// is released at once. It tells when it has one, and each time it is renewed. It
// fails if there was none, or it was lost.
func (d *Desk) Hold(ctx context.Context, r Request, tell func(Lease)) error {
	done, err := d.admit("hold", r.Semaphore)
	if err != nil {
		return err
	}
	defer done()
	r.hold = true
	lease, err := d.Acquire(ctx, r)
	if err != nil {
		return err
	}
	tell(lease)
	held := time.Now().Add(lease.Left)
	for {
		select {
		case <-ctx.Done():
			return d.releaseLate(r, lease.ID)
		case <-d.life.Done():
			return errors.Join(d.closed("hold", r.Semaphore), d.releaseLate(r, lease.ID))
		case <-time.After(jittered(lease.TTL / 3)):
		}
		switch renewed, err := d.Renew(ctx, r.Principal, r.Semaphore, lease.ID); {
		case err == nil:
			held = time.Now().Add(renewed.Left)
			tell(renewed)
		case errors.Is(err, sema.ErrLost) || time.Now().After(held):
			return err
		}
	}
}

// releaseLate releases a lease whose request has ended.
func (d *Desk) releaseLate(r Request, id string) error {
	ctx, cancel := d.lastWords()
	defer cancel()
	_, err := d.release(ctx, r.Principal, r.Semaphore, id)
	return err
}

// lastWords are said when the desk is closed, too.
func (d *Desk) lastWords() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(d.life), patience)
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

func (d *Desk) closed(op, semaphore string) error {
	return &sema.Error{Op: op, Name: semaphore, Err: sema.ErrClosed}
}

// jittered is about as long, so that many do not speak at once.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }
