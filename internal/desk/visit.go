package desk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/list"
)

// A visit is a session that this desk speaks for. It has one lease, one ticket, or
// neither.
//
// Another desk may have spoken for it before, and may do so again. All of them
// count batches on from the microsecond at which they began with a session, so
// that the numbers of a later one are higher; one that meets a higher number than
// its own begins anew.
type visit struct {
	desk      *Desk
	semaphore string
	session   protocol.Session
	owner     protocol.Owner
	keyInID   bool // see handle
	expired   bool // it was not renewed in time; guarded by Desk.mu
	ttl       time.Duration
	speaking  chan struct{}             // full while a batch is on its way
	news      chan struct{}             // full when there may be some
	place     list.Node[*visit]         // in line at this desk
	until     atomic.Pointer[time.Time] // the lease is surely held

	// What follows belongs to who speaks, see enter, or is the only one to know the
	// visit.
	seq, ack uint64
	ticket   protocol.Ticket
	lease    protocol.Seq
	weight   int64
	fence    protocol.Fence
	config   protocol.Config
	inUse    int64
	foreign  bool          // another desk has opened it, is told when there is news, and may have it wait for the next who comes there
	shared   bool          // another desk has spoken for it since this one last did
	decided  time.Duration // after which the store knows whether all that is in use is held; 0: it does
	next     time.Duration // to speak again within; 0: by the next sign of life
	parted   time.Time     // when it became idle
}

func (d *Desk) newVisit(semaphore string, session protocol.Session, owner protocol.Owner, c protocol.Config) *visit {
	v := &visit{
		desk: d, semaphore: semaphore, session: session, owner: owner, keyInID: d.keyInID, ttl: time.Duration(c.TTL) * time.Microsecond, config: c, seq: micros(),
		speaking: make(chan struct{}, 1), news: make(chan struct{}, 1),
	}
	v.place.Of = v
	v.trust(time.Now())
	return v
}

func micros() uint64 { return uint64(time.Now().UnixMicro()) }

// trust counts from when something was sent that was answered.
func (v *visit) trust(sent time.Time) {
	until := sent.Add(v.ttl * 2 / 3)
	v.until.Store(&until)
}

// leaps are by how much another desk's clock may be ahead. They are small at first:
// two desks whose clocks differ take turns in leaping, and each leap is on top of the
// other's.
var leaps = []time.Duration{
	0, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 25 * time.Hour,
}

// errStale is when another desk has spoken for the session.
var errStale = errors.New("the engine has heard a later batch")

// enter waits until nobody else speaks for the session.
func (v *visit) enter(ctx context.Context) error {
	select {
	case v.speaking <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (v *visit) exit() { <-v.speaking }

// enterFor enters if the visit still has a lease. If not it may be somebody
// else's, whose news are not to be heard by another.
func (v *visit) enterFor(ctx context.Context, h handle) error {
	if err := v.enter(ctx); err != nil {
		return err
	}
	if v.desk.visitOf(h) != v {
		v.exit()
		return &sema.Error{Op: "hold", Name: h.semaphore, Err: sema.ErrLost, Detail: "it was released meanwhile"}
	}
	return nil
}

// say says a batch, and returns what became of tickets and leases since the last.
// Who says it has entered.
func (v *visit) say(ctx context.Context, ops ...protocol.Op) (results []protocol.Result, err error) {
	v.seq++
	for _, leap := range leaps {
		if results, err = v.exchange(ctx, ops); err != errStale {
			return results, err
		}
		v.shared = true
		if len(ops) > 0 && ops[0].Verb == protocol.Acquire { // it may have been heard, and not answered
			ops = []protocol.Op{{Verb: protocol.Cancel, Ticket: ops[0].Ticket}, ops[0]}
		}
		v.seq = max(v.seq, micros()) + uint64(leap.Microseconds()) + 1
	}
	return nil, v.lost("another server speaks for it, whose clock is ahead by more than a day")
}

// exchange is one batch and its answer.
func (v *visit) exchange(ctx context.Context, ops []protocol.Op) (results []protocol.Result, err error) {
	b := protocol.Batch{Session: v.session, Owner: v.owner, Seq: v.seq, Ack: v.ack, Ops: ops, Highest: v.lease}
	sent, tries := time.Now(), 0
	var reply protocol.Reply
	err = v.desk.insist(ctx, "acquire", v.semaphore, func(ctx context.Context) (err error) {
		tries++
		reply, err = v.desk.store.Apply(ctx, v.semaphore, b)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case reply.Status == protocol.Unknown:
		return nil, v.lost("it was not renewed in time, or the semaphore was deleted")
	case reply.Status == protocol.Stale || reply.Status == protocol.Repeated && tries == 1: // which was another desk's
		return nil, errStale
	}
	v.config, v.inUse, v.next = reply.Config, reply.InUse, time.Duration(reply.Next)*time.Microsecond
	v.decided = time.Duration(reply.Undecided) * time.Microsecond
	if reply.More {
		v.next = 1
	}
	v.trust(sent)
	for _, f := range reply.Results {
		mine := v.lease != 0 && f.Lease == v.lease || v.ticket != 0 && f.Ticket == v.ticket
		if f.N > v.ack && (mine || !v.foreign) { // others' are for the desk that opened it
			v.ack = f.N
			results = append(results, f)
		}
	}
	return results, nil
}

// renew keeps the lease of a handle.
func (v *visit) renew(ctx context.Context, h handle) (Lease, error) {
	if err := v.enterFor(ctx, h); err != nil {
		return Lease{}, err
	}
	defer v.exit()
	results, err := v.say(ctx)
	if errors.Is(err, sema.ErrLost) {
		v.desk.forget(h)
	}
	if err != nil {
		return Lease{}, err
	}
	for _, f := range results {
		if f.Kind == protocol.Revoked && f.Lease == h.lease {
			v.desk.forget(h)
			v.finally() // to acknowledge it is to give it up
			return Lease{}, v.lost(f.Note)
		}
	}
	if !v.stillHas(ctx, h) {
		v.desk.forget(h)
		return Lease{}, v.lost("it was released meanwhile")
	}
	return v.lent(), nil
}

// stillHas asks the engine, if another desk may have released the lease.
func (v *visit) stillHas(ctx context.Context, h handle) bool {
	if !v.shared {
		return true
	}
	snapshot, err := v.desk.look(ctx, h.semaphore)
	if i, _ := h.in(snapshot); err != nil || i < 0 {
		return err != nil && time.Now().Before(*v.until.Load())
	}
	v.shared = false
	return true
}

// finally says a last word in somebody's absence, and has the session wait for the
// next who comes.
func (v *visit) finally(ops ...protocol.Op) {
	v.desk.callers.Go(func() {
		ctx, cancel := v.desk.lastWords()
		defer cancel()
		if _, err := v.speak(ctx, ops); err == nil {
			v.desk.park(v)
		}
	})
}

// giveUp takes the ticket of a request with a key back, unless another desk has
// spoken for it: there the same request may wait, or have its lease.
func (v *visit) giveUp() {
	v.desk.callers.Go(func() {
		ctx, cancel := v.desk.lastWords()
		defer cancel()
		if v.foreign || v.enter(ctx) != nil {
			return
		}
		defer v.exit()
		if v.shared {
			return
		}
		v.seq++
		if _, err := v.exchange(ctx, []protocol.Op{{Verb: protocol.Cancel, Ticket: v.ticket}}); err == nil {
			v.desk.park(v)
		}
	})
}

// release returns the permits of a handle's lease, and reports whether no earlier call
// has.
func (v *visit) release(ctx context.Context, h handle) (first bool, err error) {
	if err := v.enterFor(ctx, h); err != nil {
		if v.desk.wasReleased(h) {
			return false, nil
		}
		return false, err
	}
	defer v.exit()
	release := protocol.Op{Verb: protocol.Release, Lease: h.lease}
	v.seq++
	_, err = v.exchange(ctx, []protocol.Op{release})
	if err == errStale { // another desk has used the session, and may have released the lease
		v.shared = true
		if !v.stillHas(ctx, h) {
			v.desk.forget(h)
			return false, v.lost("it was released meanwhile")
		}
		_, err = v.say(ctx, release)
	}
	switch {
	case errors.Is(err, sema.ErrLost):
		v.desk.forget(h)
		return false, err
	case err != nil:
		return false, err
	}
	v.desk.noteReleased(h)
	v.desk.park(v)
	return true, nil
}

func (v *visit) handle() handle {
	return newHandle(v.semaphore, v.lease, v.session, v.owner.Key, v.keyInID)
}

// lent is the lease as it is told.
func (v *visit) lent() Lease {
	return Lease{
		Semaphore: v.semaphore, ID: v.handle().id(), Weight: v.weight, Fence: v.fence, TTL: v.ttl, Left: time.Until(*v.until.Load()),
		InUse: v.inUse, Capacity: v.config.Capacity,
	}
}

func (v *visit) lost(why string) error {
	return &sema.Error{Op: "hold", Name: v.semaphore, Weight: v.weight, Capacity: v.config.Capacity, Err: sema.ErrLost, Detail: why}
}

// A refusal is an answer: to ask again does not help.
type refusal struct{ error }

// insist calls the engine until it answers, or patience is at its end.
func (d *Desk) insist(ctx context.Context, op, semaphore string, call func(context.Context) error) error {
	start := time.Now()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		within, cancel := context.WithTimeout(ctx, patience)
		err := call(within)
		cancel()
		var final refusal
		switch {
		case err == nil:
			return nil
		case errors.As(err, &final):
			return final.error
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case d.life.Err() != nil:
			return d.closed(op, semaphore)
		case time.Since(start)+pause > patience:
			return &sema.Error{Op: op, Name: semaphore, Err: sema.ErrUnavailable, Detail: fmt.Sprintf("for %v: %v", time.Since(start).Round(time.Millisecond), err)}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}
