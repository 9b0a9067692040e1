package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

const (
	// maxOps is how many wishes one batch carries.
	maxOps = 512
	// idleAfter is how long a session is kept that nobody uses.
	idleAfter = protocol.Micros(time.Minute / time.Microsecond)
	// patience is how long an answer may take before it counts as lost.
	patience = 5 * time.Second
)

// drive has the driver look, and starts it if it is not there. It is one
// goroutine for a semaphore that is in use, the only one that speaks to the
// engine about it: what others wish while a batch is on its way joins the next.
// The mutex is held.
func (s *Semaphore) drive() {
	if !s.driven {
		s.driven = s.client.start(s.work)
	}
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *Semaphore) work() {
	for pause := newBackoff(); ; {
		step, ok := s.next()
		if !ok {
			return
		}
		if err := step(); err != nil {
			s.rest(err, pause.next())
		} else {
			pause.reset()
		}
	}
}

// rest is after an error, but not beyond the moment at which the session is
// lost: its holders have to be told then.
func (s *Semaphore) rest(after error, pause time.Duration) {
	s.mu.Lock()
	s.trouble = after
	if s.peer != nil {
		pause = min(pause, micros(s.peer.Deadline()-s.client.clock()))
	}
	s.mu.Unlock()
	s.client.sleep(pause)
}

// next is what to do: begin a session, speak, or wait. There is nothing when
// nobody wants or has anything.
func (s *Semaphore) next() (step func() error, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.client.clock()
	if s.peer != nil && s.peer.Ended(now) {
		s.lose()
	}
	s.noteQuiet()
	if s.peer != nil && !s.peer.Idle() {
		s.used = now
	}
	switch {
	case s.client.life.Err() != nil, s.peer == nil && len(s.waiters) == 0:
		s.driven = false
		return nil, false
	case s.peer == nil:
		return s.open, true
	case s.peer.Flying() || s.peer.Due(now):
		b, left := s.peer.Send(now, maxOps), s.peer.Deadline()-now
		// A third of what is left, so that there is time to say it again.
		within := min(left, max(left/3, s.peer.Config().TTL/18))
		return func() error { return s.send(b, micros(within)) }, true
	case s.peer.Idle() && (s.closed || now-s.used > idleAfter):
		s.peer = nil // the session dies by itself
		s.driven = false
		return nil, false
	}
	wait := micros(min(s.peer.Speak(), s.peer.Deadline()) - now)
	return func() error { s.wait(wait); return nil }, true
}

func micros(m protocol.Micros) time.Duration { return time.Duration(m) * time.Microsecond }

// open begins a session, in which all who wait stand in line anew.
func (s *Semaphore) open() error {
	ctx, cancel := context.WithTimeout(s.client.life, patience)
	defer cancel()
	sent := s.client.clock()
	session, config, err := s.client.store.Open(ctx, s.name, s.config, s.client.instance)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = nil
	s.peer = protocol.NewPeer(sent, session, config)
	for _, ticket := range slices.Sorted(maps.Keys(s.waiters)) {
		s.peer.Wish(s.waiters[ticket].op)
	}
	return nil
}

// send says a batch and hears the answer, if it comes while it still counts.
func (s *Semaphore) send(b protocol.Batch, within time.Duration) error {
	ctx, cancel := context.WithTimeout(s.client.life, min(patience, within))
	defer cancel()
	reply, err := s.client.store.Apply(ctx, s.name, b)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = nil
	if s.peer == nil {
		return nil
	}
	for _, f := range s.peer.Hear(s.client.clock(), b.Seq, reply) {
		s.fate(f)
	}
	if s.peer.Ended(s.client.clock()) {
		s.lose()
	}
	return nil
}

// wait is until there is something to do.
func (s *Semaphore) wait(at time.Duration) {
	timer := time.NewTimer(at)
	defer timer.Stop()
	select {
	case <-s.news:
	case <-timer.C:
	case <-s.client.life.Done():
	}
}

// fate ends a waiter, or a lease. The mutex is held.
func (s *Semaphore) fate(f protocol.Fate) {
	if f.Kind == protocol.Revoked {
		if g := s.leases[f.Lease]; g != nil {
			delete(s.leases, f.Lease)
			s.loseGrant(g, "it was taken away by an administrator")
		}
		return
	}
	w := s.waiters[f.Ticket]
	delete(s.waiters, f.Ticket)
	if w == nil {
		return
	}
	if f.Kind != protocol.Granted {
		w.ended <- outcome{err: sentinelOf(f.Kind)}
		return
	}
	w.ended <- outcome{lease: s.lend(f, w.op.Weight)}
}

func (s *Semaphore) lend(f protocol.Fate, weight int64) *lease {
	g := &grant{sem: s, peer: s.peer, fence: f.Fence, since: time.Now(), out: weight, lost: make(chan struct{})}
	if s.peer.Config().Kind == protocol.Concurrency {
		s.leases[f.Lease] = g
	}
	return &lease{g, weight}
}

func sentinelOf(k protocol.FateKind) error {
	switch k {
	case protocol.Full:
		return sema.ErrFull
	case protocol.QueueFull:
		return sema.ErrQueueFull
	case protocol.TooLarge:
		return sema.ErrTooLarge
	case protocol.Draining:
		return sema.ErrDraining
	case protocol.TimedOut:
		return sema.ErrTimeout
	}
	return fmt.Errorf("%w: fate %d", sema.ErrInvalid, k)
}

// lose ends the session: its leases are lost, those who wait will stand in line
// in another one. The mutex is held.
func (s *Semaphore) lose() {
	s.peer = nil
	for seq, g := range s.leases {
		delete(s.leases, seq)
		s.loseGrant(g, unrenewed)
	}
}
