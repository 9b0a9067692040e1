package leasing

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/list"
)

// A session is a session at the store that this manager uses. It has one lease, one ticket,
// or neither.
//
// Other managers may have used it before, and may do so again. Each manager numbers batches
// from the microsecond at which it began to use the session, so that a later one has higher
// numbers. A manager whose number is too low starts again with a higher one.
type session struct {
	manager   *Manager
	semaphore string
	number    protocol.Session
	owner     protocol.Owner
	keyInID   bool // see leaseID
	expired   bool // not renewed in time; guarded by Manager.mu
	ttl       time.Duration
	turn      chan struct{}             // a lock: full while a batch is in flight
	wakeups   chan struct{}             // full when there may be results
	node      list.Node[*session]       // in the queue of this manager
	until     atomic.Pointer[time.Time] // until when the lease is certainly held

	// Guarded by turn, see lock, or used by one goroutine only.
	seq, ack  uint64
	ticket    protocol.Ticket
	lease     protocol.Seq
	id        leaseID   // of the lease, see leaseID; its proof is a MAC, and costs more than the rest
	mac       hash.Hash // under the key of the owner, for reuse; nil: not used yet
	weight    int64
	slots     protocol.Slots
	fence     protocol.Fence
	config    protocol.Config
	inUse     int64
	foreign   bool          // another manager has opened it, receives its notifications, and may keep it idle
	shared    bool          // another manager has used it since this one last did
	decidedIn time.Duration // time until the store knows whether all permits in use are held; 0: it knows
	sendIn    time.Duration // send the next batch within this time; 0: with the next heartbeat
	idleSince time.Time
}

func (m *Manager) newSession(semaphore string, number protocol.Session, owner protocol.Owner, c protocol.Config) *session {
	s := &session{
		manager: m, semaphore: semaphore, number: number, owner: owner, keyInID: m.keyInID, ttl: time.Duration(c.TTL) * time.Microsecond, config: c, seq: micros(),
		turn: make(chan struct{}, 1), wakeups: make(chan struct{}, 1),
	}
	s.node.Of = s
	s.extend(time.Now())
	return s
}

func micros() uint64 { return uint64(time.Now().UnixMicro()) }

// extend notes a reply to a batch: the lease is certainly held for 2/3 of a TTL after the
// batch was sent.
func (s *session) extend(sent time.Time) {
	until := sent.Add(s.ttl * 2 / 3)
	s.until.Store(&until)
}

// leaps are the assumptions, tried in order, about how far the clock of another manager is
// ahead. The first ones are small: managers that use a session alternately would otherwise
// raise each other's numbers by a large leap each time.
var leaps = []time.Duration{
	0, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 25 * time.Hour,
}

// errStale is the error of a batch whose number is not higher than the last one.
var errStale = errors.New("the store has applied a later batch")

// lock waits until no other batch of the session is in flight.
func (s *session) lock(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *session) unlock() { <-s.turn }

// lockFor locks the session if it still has the lease. Otherwise the session may serve another
// request, whose results must not be read here.
func (s *session) lockFor(ctx context.Context, h leaseID) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	if s.manager.sessionOf(h) != s {
		s.unlock()
		return &sema.Error{Op: "hold", Name: h.semaphore, Err: sema.ErrLost, Detail: "the lease was released meanwhile"}
	}
	return nil
}

// sendLocked sends a batch, and returns the results of tickets and leases since the last one.
func (s *session) sendLocked(ctx context.Context, ops ...protocol.Op) (results []protocol.Result, err error) {
	s.seq++
	for _, leap := range leaps {
		if results, err = s.sendOnceLocked(ctx, ops); err != errStale {
			return results, err
		}
		s.shared = true
		if len(ops) > 0 && ops[0].Verb == protocol.Acquire { // it may have been applied although no reply arrived
			ops = []protocol.Op{{Verb: protocol.Cancel, Ticket: ops[0].Ticket}, ops[0]}
		}
		s.seq = max(s.seq, micros()) + uint64(leap.Microseconds()) + 1
	}
	return nil, s.lost("another server uses the session, and its clock is ahead by more than a day")
}

// sendOnceLocked sends a batch with the current number.
func (s *session) sendOnceLocked(ctx context.Context, ops []protocol.Op) (results []protocol.Result, err error) {
	b := protocol.Batch{Session: s.number, Owner: s.owner, Seq: s.seq, Ack: s.ack, Ops: ops, Highest: s.lease}
	sent, tries := time.Now(), 0
	var reply protocol.Reply
	err = s.manager.retry(ctx, "acquire", s.semaphore, func(ctx context.Context) (err error) {
		tries++
		reply, err = s.manager.store.Apply(ctx, s.semaphore, b)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case reply.Status == protocol.Unknown:
		return nil, s.lost("it was not renewed in time, or the semaphore was deleted")
	case reply.Status == protocol.Stale || reply.Status == protocol.Repeated && tries == 1: // the batch was another manager's
		return nil, errStale
	}
	s.config, s.inUse, s.sendIn = reply.Config, reply.InUse, time.Duration(reply.Next)*time.Microsecond
	s.decidedIn = time.Duration(reply.Undecided) * time.Microsecond
	if reply.More {
		s.sendIn = 1
	}
	s.extend(sent)
	for _, f := range reply.Results {
		mine := s.lease != 0 && f.Lease == s.lease || s.ticket != 0 && f.Ticket == s.ticket
		if f.N > s.ack && (mine || !s.foreign) { // other results are for the manager that opened it
			s.ack = f.N
			results = append(results, f)
		}
	}
	return results, nil
}

// renew renews the lease with an ID.
func (s *session) renew(ctx context.Context, h leaseID) (Lease, error) {
	if err := s.lockFor(ctx, h); err != nil {
		return Lease{}, err
	}
	defer s.unlock()
	results, err := s.sendLocked(ctx)
	if errors.Is(err, sema.ErrLost) {
		s.manager.forget(h)
	}
	if err != nil {
		return Lease{}, err
	}
	for _, f := range results {
		if f.Kind == protocol.Revoked && f.Lease == h.lease {
			s.manager.forget(h)
			s.finish() // the acknowledgement releases the lease
			return Lease{}, s.lost(f.Note)
		}
	}
	if !s.stillHolds(ctx, h) {
		s.manager.forget(h)
		return Lease{}, s.lost("the lease was released meanwhile")
	}
	return s.granted(), nil
}

// stillHolds reports whether the session has the lease. It inspects the store if another
// manager may have released it.
func (s *session) stillHolds(ctx context.Context, h leaseID) bool {
	if !s.shared {
		return true
	}
	snapshot, err := s.manager.inspect(ctx, h.semaphore)
	if i, _ := h.find(snapshot); err != nil || i < 0 {
		return err != nil && time.Now().Before(*s.until.Load())
	}
	s.shared = false
	return true
}

// finish sends a last batch in the background, and keeps the session idle.
func (s *session) finish(ops ...protocol.Op) {
	s.manager.callers.Go(func() {
		ctx, cancel := s.manager.detached()
		defer cancel()
		if _, err := s.lockAndSend(ctx, ops); err == nil {
			s.manager.keepIdle(s)
		}
	})
}

// cancelUnlessShared cancels the ticket of a request with a key. It does not if another manager
// has used the session: the same request may wait there, or hold the lease.
func (s *session) cancelUnlessShared() {
	s.manager.callers.Go(func() {
		ctx, cancel := s.manager.detached()
		defer cancel()
		if s.foreign || s.lock(ctx) != nil {
			return
		}
		defer s.unlock()
		if s.shared {
			return
		}
		s.seq++
		if _, err := s.sendOnceLocked(ctx, []protocol.Op{{Verb: protocol.Cancel, Ticket: s.ticket}}); err == nil {
			s.manager.keepIdle(s)
		}
	})
}

// release releases the lease with an ID. It returns false if an earlier call has released it.
func (s *session) release(ctx context.Context, h leaseID) (first bool, err error) {
	if err := s.lockFor(ctx, h); err != nil {
		if s.manager.wasReleased(h) {
			return false, nil
		}
		return false, err
	}
	defer s.unlock()
	release := protocol.Op{Verb: protocol.Release, Lease: h.lease}
	s.seq++
	_, err = s.sendOnceLocked(ctx, []protocol.Op{release})
	if err == errStale { // another manager has used the session, and may have released the lease
		s.shared = true
		if !s.stillHolds(ctx, h) {
			s.manager.forget(h)
			return false, s.lost("the lease was released meanwhile")
		}
		_, err = s.sendLocked(ctx, release)
	}
	switch {
	case errors.Is(err, sema.ErrLost):
		s.manager.forget(h)
		return false, err
	case err != nil:
		return false, err
	}
	s.manager.noteReleased(h)
	s.manager.keepIdle(s)
	return true, nil
}

// leaseID returns the content of the ID of the session's lease.
func (s *session) leaseID() leaseID {
	switch {
	case s.id.lease == s.lease:
		return s.id
	case s.keyInID:
		s.id = newLeaseID(s.semaphore, s.lease, s.number, s.owner.Key, true)
		return s.id
	case s.mac == nil:
		s.mac = newMAC(s.owner.Key)
	default:
		s.mac.Reset() // less than half the time of a new MAC
	}
	s.id = leaseID{s.semaphore, s.lease, s.number, proofOf(s.lease, s.mac)}
	return s.id
}

// granted returns the lease of the session.
func (s *session) granted() Lease {
	return Lease{
		Semaphore: s.semaphore, ID: s.leaseID().id(), Weight: s.weight, Slots: s.slots, Fence: s.fence, TTL: s.ttl, Left: time.Until(*s.until.Load()),
		InUse: s.inUse, Capacity: s.config.Capacity,
	}
}

func (s *session) lost(why string) error {
	return &sema.Error{Op: "hold", Name: s.semaphore, Weight: s.weight, Capacity: s.config.Capacity, Err: sema.ErrLost, Detail: why}
}

// A final error is a reply of the store: retrying does not help.
type final struct{ error }

// retry calls the store until it replies, for at most storeTimeout. A denial is a reply.
func (m *Manager) retry(ctx context.Context, op, semaphore string, call func(context.Context) error) error {
	start := time.Now()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		within, cancel := context.WithTimeout(ctx, storeTimeout)
		err := call(within)
		cancel()
		var final final
		switch {
		case err == nil:
			return nil
		case errors.As(err, &final):
			return final.error
		case errors.Is(err, fs.ErrPermission) && errors.Is(err, fleet.FaultAccess): // a service denies it to the token
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case m.life.Err() != nil:
			return m.closed(op, semaphore)
		case time.Since(start)+pause > storeTimeout:
			return &sema.Error{Op: op, Name: semaphore, Err: sema.ErrUnavailable, Detail: fmt.Sprintf("for %s: %s", time.Since(start).Round(time.Millisecond), err)}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}
