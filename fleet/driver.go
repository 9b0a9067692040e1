package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

const (
	// maxOps bounds the operations of a batch.
	maxOps = 512
	// idleAfter is how long an unused session is kept open.
	idleAfter = protocol.Micros(time.Minute / time.Microsecond)
	// replyTimeout is how long to wait for a reply before it counts as lost.
	replyTimeout = 5 * time.Second
)

// A driver is the state of the goroutine that exchanges batches with the store. It runs
// while there is something to send; a timer starts it for the next heartbeat. Operations
// that are requested while a batch is in flight form the next batch (group commit).
// The session's mutex guards it.
type driver struct {
	running        bool
	starting       bool        // a worker was asked to run the driver and has not begun
	alarm          *time.Timer // starts the driver again
	backoff        backoff
	lastUsed       protocol.Micros // when the session was last in use
	began          protocol.Micros // when the current exchange began
	lastErr        error           // of the last exchange; nil after a reply
	unrepliedSince time.Time       // when the first request was sent that has no reply yet; zero: none
	repliedAt      time.Time       // when the last reply to a batch of a known session arrived
}

// startDriverLocked starts the driver unless it runs.
func (s *session) startDriverLocked() {
	if !s.driver.running {
		s.driver.running = s.client.start(s.beginDriver)
		s.driver.starting = s.driver.running
	}
}

// beginDriver runs the driver, unless a caller has become the driver meanwhile. If the
// driver was then started again, either worker may run it.
func (s *session) beginDriver() {
	s.mu.Lock()
	begins := s.driver.starting
	s.driver.starting = false
	s.mu.Unlock()
	if begins {
		s.runDriver()
	}
}

func (s *session) runDriver() {
	for {
		step, ok := s.nextStep()
		if !ok {
			return
		}
		s.runStep(step)
	}
}

// A step is one exchange. It is abandoned when the limit is reached.
type step func(limit) error

func (s *session) runStep(do step) {
	if err := do(limit{}); err != nil {
		s.pauseAfter(err)
	}
}

// pauseAfter pauses after an error. The pause ends when the session is lost or the local
// limit applies, since callers wait for that.
func (s *session) pauseAfter(err error) {
	s.mu.Lock()
	now := s.client.clock()
	pause := s.driver.backoff.next()
	if s.peer != nil {
		pause = min(pause, micros(s.peer.Deadline()-now))
	}
	s.driver.lastErr = err
	if !errors.Is(err, errRejected) { // a rejection is a reply
		s.counts.Failures++
		for _, w := range s.waiters {
			w.noteQueued()
		}
		pause = min(pause, s.failOpen.failedLocked(s.driver.began, now))
	}
	s.mu.Unlock()
	s.client.sleep(pause)
}

// noteSendLocked notes that a request is about to be sent.
func (d *driver) noteSendLocked() {
	if d.unrepliedSince.IsZero() {
		d.unrepliedSince = time.Now()
	}
}

// unresponsiveSinceLocked reports whether the store has not replied since then, although
// a request was in flight for most of that time.
func (d *driver) unresponsiveSinceLocked(since time.Time) bool {
	return !d.unrepliedSince.IsZero() && d.repliedAt.Before(since) && time.Since(d.unrepliedSince) > time.Since(since)/2
}

// unresponsiveForLocked returns how long a caller that has waited since then has been
// without a reply. It is 0 if no request is in flight.
func (d *driver) unresponsiveForLocked(since time.Time) time.Duration {
	switch {
	case d.unrepliedSince.IsZero():
		return 0
	case d.unrepliedSince.After(since):
		return time.Since(d.unrepliedSince)
	}
	return time.Since(since)
}

// nextStep returns the next step: open a session, or send a batch. It returns false and
// stops the driver if no caller waits or holds, or if nothing is due until the alarm.
func (s *session) nextStep() (do step, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.client.clock()
	s.driver.began = now
	if s.peer != nil && s.peer.Ended(now) {
		s.loseLocked(reasonNotRenewed)
	}
	if s.peer != nil {
		s.strategy.tendLocked(now)
	}
	if s.ending.drained != nil {
		s.endDrainLocked()
	}
	probe := s.failOpen.probeDueLocked()
	if s.peer != nil && (!s.peer.Idle() || s.peer.Polls(now)) {
		s.driver.lastUsed = now
	}
	switch {
	case s.client.life.Err() != nil:
		return s.stopDriverLocked(0)
	case s.peer == nil && !s.closed && (s.waitsLocked() || s.owesLocked() || s.failOpen.applies()):
		within := s.failOpen.replyTimeout()
		s.driver.noteSendLocked()
		return func(l limit) error { return s.openSession(within, l) }, true
	case s.peer == nil:
		s.failOpen.forgetLocked() // no caller waits for a reply
		return s.stopDriverLocked(0)
	case s.peer.Due(now) || probe != 0 && now >= probe:
		b, left := s.peer.Send(now, maxOps), s.peer.Deadline()-now
		// Wait for a third of the remaining time, which leaves time to send it again.
		within := min(micros(min(left, max(left/3, s.peer.Config().TTL/18))), s.failOpen.replyTimeout())
		s.driver.noteSendLocked()
		return func(l limit) error { return s.send(b, within, l) }, true
	case s.peer.Idle() && (s.closed || now-s.driver.lastUsed > s.idleAfterLocked()):
		s.peer.Leave()
		return func(limit) error { return nil }, true
	}
	at := min(s.peer.NextSend(), s.peer.Deadline())
	for _, due := range []protocol.Micros{s.strategy.dueLocked(now), probe} {
		if due != 0 {
			at = min(at, due)
		}
	}
	return s.stopDriverLocked(max(1, at-now))
}

// stopDriverLocked stops the driver, and sets its alarm unless until is 0.
func (s *session) stopDriverLocked(until protocol.Micros) (step, bool) {
	s.driver.running = false
	switch {
	case until == 0 && s.driver.alarm == nil:
	case until == 0:
		s.driver.alarm.Stop()
	case s.driver.alarm == nil:
		s.driver.alarm = time.AfterFunc(micros(until), s.wakeDriver)
	default:
		s.driver.alarm.Reset(micros(until))
	}
	return nil, false
}

func (s *session) wakeDriver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startDriverLocked()
}

// idleAfterLocked returns how long the session is kept open while it is unused. Only the
// session of a grant can refund it, so a session of a rate is kept for a window.
func (s *session) idleAfterLocked() protocol.Micros {
	return max(idleAfter, min(s.windowLocked(), maxRateIdle))
}

func micros(m protocol.Micros) time.Duration { return time.Duration(m) * time.Microsecond }

// openSession opens a session, and requests all waiters' operations in it.
func (s *session) openSession(within time.Duration, l limit) error {
	ctx := s.client.within(within, l)
	defer ctx.release()
	sent := s.client.clock()
	s.mu.Lock()
	by := protocol.Opener{Client: s.client.self, Owner: protocol.Owner{Key: protocol.NewKey()}, Highest: s.highest, MustExist: s.settings.existing}
	s.mu.Unlock()
	session, config, err := s.client.store.Open(ctx, s.name, s.config, by)
	if errors.Is(err, fs.ErrNotExist) {
		err = missing{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && !errors.Is(err, protocol.ErrVersion) && !errors.Is(err, sema.ErrInvalid) && !isDenial(err) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.driver.lastErr = nil
	s.failOpen.repliedLocked(s.client.clock())
	if isDenial(err) || errors.Is(err, fs.ErrNotExist) {
		s.rejectAllLocked(err)
		return fmt.Errorf("%w: %w", errRejected, err)
	}
	if err == nil {
		err = s.checkUsable(config)
	}
	if err != nil {
		if !errors.Is(err, sema.ErrInvalid) {
			err = fmt.Errorf("%w: %w", sema.ErrInvalid, err)
		}
		s.rejectAllLocked(err)
		return fmt.Errorf("%w: %w", errRejected, err)
	}
	s.noteConfigLocked(config)
	peer := protocol.NewPeer(sent, session, config, by)
	if peer.Ended(s.client.clock()) {
		return fmt.Errorf("the reply to open took %v, longer than a session lasts", micros(s.client.clock()-sent))
	}
	s.peer = peer
	s.checkMismatch(config)
	if s.counts.Sessions == 0 {
		s.scheduleModeCheckLocked(s.client.clock())
	}
	s.counts.Sessions++
	s.chargeLocked()
	for _, ticket := range slices.Sorted(maps.Keys(s.waiters)) {
		if w := s.waiters[ticket]; !w.held {
			s.peer.Request(*w.op)
		}
	}
	if own := s.strategy.pendingLocked(); own.Ticket != 0 {
		s.peer.Request(own)
	}
	return nil
}

// errRejected is wrapped by errors that are replies of the store.
var errRejected = errors.New("rejected by the store")

// isDenial reports whether the store denies an operation, such as a service that does not
// know the token. It has replied, so that no local limit applies, and callers do not wait.
func isDenial(err error) bool { return errors.Is(err, fs.ErrPermission) }

// errUnknownSession is the reply of a store that does not have the session.
var errUnknownSession = fmt.Errorf("%w: unknown session", errRejected)

// send sends a batch and handles the reply.
func (s *session) send(b protocol.Batch, within time.Duration, l limit) error {
	ctx := s.client.within(within, l)
	defer ctx.release()
	began := time.Now()
	reply, err := s.client.store.Apply(ctx, s.name, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Batches++
	s.counts.ExchangeTime += time.Since(began)
	if len(b.Ops) == 0 && !b.End {
		s.counts.countHeartbeat(err == nil && reply.Status != protocol.Unknown && reply.Status != protocol.Stale)
	}
	if isDenial(err) { // heartbeats continue: the token may be replaced before the leases expire
		s.driver.lastErr = nil
		s.failOpen.repliedLocked(s.client.clock())
		s.rejectAllLocked(err)
		return fmt.Errorf("%w: %w", errRejected, err)
	}
	if err != nil {
		return err
	}
	now := s.client.clock()
	s.driver.lastErr = nil
	s.failOpen.repliedLocked(now)
	if s.peer == nil {
		return nil
	}
	results := s.peer.Receive(now, b.Seq, reply)
	if reply.Status != protocol.Unknown && reply.Status != protocol.Stale {
		s.driver.unrepliedSince, s.driver.repliedAt = time.Time{}, time.Now() // Unknown and Stale do not count: sessions that the store forgets do not help waiters
	}
	switch {
	case b.End:
		s.highest = s.peer.Highest()
		s.peer = nil
		s.forgetAnchorLocked()
		s.ending.unconfirmedEnd = 0
		s.notifyLenderLocked(protocol.Reply{Config: s.last.Config})
		return nil
	case reply.Status == protocol.Unknown || reply.Status == protocol.Stale:
		s.loseLocked(errUnknownSession.Error())
		return errUnknownSession // the driver pauses before it opens the next session
	}
	s.driver.backoff = backoff{}
	s.last = reply
	s.last.Results = nil
	s.noteConfigLocked(reply.Config)
	s.inUse.Store(reply.InUse)
	for _, f := range results {
		s.resolveLocked(f)
	}
	s.spendings.observe(now, reply.Config.Window, reply.InUse)
	s.noteQueuedLocked(b.Ops)
	s.strategy.repliedLocked(reply, len(b.Ops) == 0)
	if s.waitsLocked() {
		s.scheduleModeCheckLocked(now)
	}
	s.notifyLenderLocked(reply)
	if len(s.flushes) > 0 {
		s.endConfirmedFlushesLocked()
	}
	return nil
}
