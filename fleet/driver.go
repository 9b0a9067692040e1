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
	// idleAfter is how long a session is kept that no caller uses.
	idleAfter = protocol.Micros(time.Minute / time.Microsecond)
	// replyTimeout is how long a reply may take before it counts as lost.
	replyTimeout = 5 * time.Second
)

// A driver is the state of the goroutine that exchanges batches with the store: one
// while there is something to send, and none until the next heartbeat is due. Requests
// that come while a batch is on its way join the next one.
type driver struct {
	works   bool
	alarm   *time.Timer // starts it again
	pause   *backoff
	used    protocol.Micros // when the session was last seen in use
	began   protocol.Micros // when the exchange began
	trouble error           // why the last exchange failed
	asked   time.Time       // when the first batch was due to which there is no reply yet; zero: there is none
	heard   time.Time       // when it was
}

// drive starts the driver if it does not work. The mutex is held.
func (s *session) drive() {
	if !s.driver.works {
		s.driver.works = s.client.start(s.work)
	}
}

func (s *session) work() {
	for {
		step, ok := s.next()
		if !ok {
			return
		}
		s.try(step)
	}
}

func (s *session) try(step func() error) {
	if err := step(); err != nil {
		s.rest(err)
	}
}

// carriesNow makes the caller the driver, if there is a session and no driver works.
// Then it has to call carry. The mutex is held.
func (s *session) carriesNow() bool {
	if s.peer == nil || s.driver.works || !s.client.join() {
		return false
	}
	s.driver.works = true
	return true
}

// carry makes one exchange in the goroutine of the caller that waits for it, which saves
// two wake-ups. A worker does what comes after that.
func (s *session) carry() {
	defer s.client.leave()
	step, ok := s.next()
	if !ok {
		return
	}
	if err := step(); err != nil {
		step = func() error { return err }
	} else if step, ok = s.next(); !ok {
		return
	}
	s.client.start(func() {
		s.try(step)
		s.work()
	})
}

// rest pauses after an error, but not beyond the moment at which the session is lost or
// the local limit applies: callers wait for that.
func (s *session) rest(after error) {
	s.mu.Lock()
	now := s.client.clock()
	pause := s.driver.pause.next()
	if s.peer != nil {
		pause = min(pause, micros(s.peer.Deadline()-now))
	}
	s.driver.trouble = after
	if !errors.Is(after, errRefused) { // which is a reply
		s.counts.Failures++
		for _, w := range s.waiters {
			w.noteQueued()
		}
		pause = min(pause, s.failOpen.failed(s.driver.began, now))
	}
	s.mu.Unlock()
	s.client.sleep(pause)
}

// ask notes that an exchange is about to be sent.
func (d *driver) ask() {
	if d.asked.IsZero() {
		d.asked = time.Now()
	}
}

// silent reports whether the store has replied to nothing since then, though it was
// asked for most of that time. The mutex is held.
func (d *driver) silent(since time.Time) bool {
	return !d.asked.IsZero() && d.heard.Before(since) && time.Since(d.asked) > time.Since(since)/2
}

// silentFor returns for how long the store, though it was asked, has not replied to a
// caller that has waited since then. The mutex is held.
func (d *driver) silentFor(since time.Time) time.Duration {
	switch {
	case d.asked.IsZero():
		return 0
	case d.asked.After(since):
		return time.Since(d.asked)
	}
	return time.Since(since)
}

// reached notes that the store has replied. The mutex is held.
func (s *session) reached(now protocol.Micros) {
	s.driver.trouble = nil
	s.failOpen.answered(now)
}

// next returns what to do: open a session, or send a batch. There is nothing to do when
// no caller waits or holds, or until the alarm.
func (s *session) next() (step func() error, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.client.clock()
	s.driver.began = now
	if s.peer != nil && s.peer.Ended(now) {
		s.lose(unrenewed)
	}
	if s.peer != nil {
		s.strategy.tend(now)
	}
	s.noteQuiet()
	if s.peer != nil && (!s.peer.Idle() || s.peer.Polls(now)) {
		s.driver.used = now
	}
	switch {
	case s.client.life.Err() != nil:
		return s.stop(0)
	case s.peer == nil && !s.closed && (s.waits() || s.failOpen.applies()):
		within := s.failOpen.replyTimeout()
		s.driver.ask()
		return func() error { return s.begin(within) }, true
	case s.peer == nil:
		s.failOpen.forget() // no caller waits for a reply
		return s.stop(0)
	case s.peer.Flying() || s.peer.Due(now) || s.failOpen.probeDue(now):
		b, left := s.peer.Send(now, maxOps), s.peer.Deadline()-now
		// A third of what is left, so that there is time to send it again.
		within := min(micros(min(left, max(left/3, s.peer.Config().TTL/18))), s.failOpen.replyTimeout())
		s.driver.ask()
		return func() error { return s.send(b, within) }, true
	case s.peer.Idle() && (s.closed || now-s.driver.used > idleAfter):
		s.peer.Leave()
		return func() error { return nil }, true
	}
	at := min(s.peer.Speak(), s.peer.Deadline())
	for _, due := range []protocol.Micros{s.strategy.due(now), s.failOpen.due()} {
		if due != 0 {
			at = min(at, due)
		}
	}
	return s.stop(max(1, at-now))
}

// stop ends the driver's work, for some time if there is a session. The mutex is
// held.
func (s *session) stop(until protocol.Micros) (func() error, bool) {
	s.driver.works = false
	switch {
	case until == 0 && s.driver.alarm == nil:
	case until == 0:
		s.driver.alarm.Stop()
	case s.driver.alarm == nil:
		s.driver.alarm = time.AfterFunc(micros(until), s.wake)
	default:
		s.driver.alarm.Reset(micros(until))
	}
	return nil, false
}

func (s *session) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drive()
}

func micros(m protocol.Micros) time.Duration { return time.Duration(m) * time.Microsecond }

// begin opens a session, in which all waiters are queued again.
func (s *session) begin(within time.Duration) error {
	ctx := s.client.within(within)
	defer ctx.end()
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
	if err != nil && !errors.Is(err, protocol.ErrVersion) && !errors.Is(err, sema.ErrInvalid) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.reached(s.client.clock())
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		s.rejectAll(err)
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	if err == nil {
		err = s.unfit(config)
	}
	if err != nil {
		if !errors.Is(err, sema.ErrInvalid) {
			err = fmt.Errorf("%w: %w", sema.ErrInvalid, err)
		}
		s.rejectAll(err)
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	s.noteConfig(config)
	peer := protocol.NewPeer(sent, session, config, by)
	if peer.Ended(s.client.clock()) {
		return fmt.Errorf("the reply to open took %v, longer than a session lasts", micros(s.client.clock()-sent))
	}
	s.peer = peer
	s.checkMismatch(config)
	if s.counts.Sessions == 0 {
		s.watchModes(s.client.clock())
	}
	s.counts.Sessions++
	for _, ticket := range slices.Sorted(maps.Keys(s.waiters)) {
		s.peer.Wish(s.waiters[ticket].op)
	}
	if own := s.strategy.pending(); own.Ticket != 0 {
		s.peer.Wish(own)
	}
	return nil
}

// errRefused wraps the errors that are replies of the store.
var errRefused = errors.New("rejected by the store")

// errForgotten is the reply of a store that does not know the session.
var errForgotten = fmt.Errorf("%w: unknown session", errRefused)

// send sends a batch and handles the reply.
func (s *session) send(b protocol.Batch, within time.Duration) error {
	ctx := s.client.within(within)
	defer ctx.end()
	reply, err := s.client.store.Apply(ctx, s.name, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Batches++
	if err != nil {
		return err
	}
	now := s.client.clock()
	s.reached(now)
	if s.peer == nil {
		return nil
	}
	results := s.peer.Hear(now, b.Seq, reply)
	if reply.Status != protocol.Unknown && reply.Status != protocol.Stale {
		s.driver.asked, s.driver.heard = time.Time{}, time.Now() // a session that is opened and forgotten is of no use to waiters
	}
	switch {
	case b.End:
		s.peer = nil
		s.ending.leaving = 0
		s.tellLender(protocol.Reply{Config: s.last.Config})
		return nil
	case reply.Status == protocol.Unknown || reply.Status == protocol.Stale:
		s.lose(errForgotten.Error())
		return errForgotten // not to begin again and again without a pause
	}
	s.driver.pause.reset()
	s.last = reply
	s.last.Results = nil
	s.noteConfig(reply.Config)
	s.inUse.Store(reply.InUse)
	s.highest = s.peer.Highest()
	for _, f := range results {
		s.resolve(f)
	}
	s.noteQueued(b.Ops)
	s.strategy.replied(reply, len(b.Ops) == 0)
	if s.waits() {
		s.watchModes(now)
	}
	s.tellLender(reply)
	s.noteHeard()
	return nil
}
