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
	// maxOps is how many wishes one batch carries.
	maxOps = 512
	// idleAfter is how long a session is kept that nobody uses.
	idleAfter = protocol.Micros(time.Minute / time.Microsecond)
	// replyTimeout is how long a reply may take before it counts as lost.
	replyTimeout = 5 * time.Second
	// wakeLook is how often a driver looks at the clock while a pool lends. Its
	// timers stand still while the machine sleeps, its session does not.
	wakeLook = protocol.Micros(100 * time.Millisecond / time.Microsecond)
)

// A driver speaks to the engine about a semaphore: one goroutine, while there is
// something to say, and none until the next sign of life is due. What others
// wish while a batch is on its way joins the next one.
type driver struct {
	works   bool
	alarm   *time.Timer // has it work again
	pause   *backoff
	used    protocol.Micros // when the session was last seen in use
	began   protocol.Micros // the exchange
	trouble error           // why the engine was not reached, last
	asked   time.Time       // when the first batch was due to which there is no reply yet; zero: there is none
	heard   time.Time       // when it was
}

// drive has the driver work. The mutex is held.
func (s *Semaphore) drive() {
	if !s.driver.works {
		s.driver.works = s.client.start(s.work)
	}
}

func (s *Semaphore) work() {
	for {
		step, ok := s.next()
		if !ok {
			return
		}
		s.try(step)
	}
}

func (s *Semaphore) try(step func() error) {
	if err := step(); err != nil {
		s.rest(err)
	}
}

// carriesNow has a caller be the driver, if there is a session and nobody works.
// Then it has to call carry. The mutex is held.
func (s *Semaphore) carriesNow() bool {
	if s.peer == nil || s.driver.works || !s.client.join() {
		return false
	}
	s.driver.works = true
	return true
}

// carry is one exchange in the goroutine of who waits for it, which saves it to
// wake another one and to be woken. What comes after that is for a worker.
func (s *Semaphore) carry() {
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

// rest is after an error, but not beyond the moment at which the session is lost
// or the local limit rules: those who wait for that have to be told.
func (s *Semaphore) rest(after error) {
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
		pause = min(pause, s.fallback.failed(s, s.driver.began, now))
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

// reached is when the engine has answered. The mutex is held.
func (s *Semaphore) reached(now protocol.Micros) {
	s.driver.trouble = nil
	s.fallback.answered(s, now)
}

// next is what to do: begin a session, or speak. There is nothing when nobody
// wants or has anything, or until the alarm.
func (s *Semaphore) next() (step func() error, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.client.clock()
	s.driver.began = now
	if s.peer != nil && s.peer.Ended(now) {
		s.lose(unrenewed)
	}
	s.tendPool(now)
	s.noteQuiet()
	if s.peer != nil && (!s.peer.Idle() || s.peer.Polls(now)) {
		s.driver.used = now
	}
	switch {
	case s.client.life.Err() != nil:
		return s.stop(0)
	case s.peer == nil && !s.closed && (len(s.waiters) > 0 || s.pool.asked.Ticket != 0 || s.fallback.rules()):
		within := s.fallback.replyTimeout()
		s.driver.ask()
		return func() error { return s.begin(within) }, true
	case s.peer == nil:
		s.fallback.forget() // nobody listens for an answer
		return s.stop(0)
	case s.peer.Flying() || s.peer.Due(now) || s.fallback.probeDue(now):
		b, left := s.peer.Send(now, maxOps), s.peer.Deadline()-now
		// A third of what is left, so that there is time to say it again.
		within := min(micros(min(left, max(left/3, s.peer.Config().TTL/18))), s.fallback.replyTimeout())
		s.driver.ask()
		return func() error { return s.send(b, within) }, true
	case s.peer.Idle() && (s.closed || now-s.driver.used > idleAfter):
		s.peer.Leave()
		return func() error { return nil }, true
	}
	at := min(s.peer.Speak(), s.peer.Deadline())
	if due, any := s.pool.due(s.quantum()); any {
		at = min(at, due)
	}
	if s.pool.front != nil && s.pool.front.held > 0 {
		at = min(at, now+wakeLook)
	}
	if due, any := s.fallback.due(); any {
		at = min(at, due)
	}
	return s.stop(max(1, at-now))
}

// stop ends the driver's work, for some time if there is a session. The mutex is
// held.
func (s *Semaphore) stop(until protocol.Micros) (func() error, bool) {
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

func (s *Semaphore) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drive()
}

func micros(m protocol.Micros) time.Duration { return time.Duration(m) * time.Microsecond }

// begin begins a session, in which all who wait stand in line anew.
func (s *Semaphore) begin(within time.Duration) error {
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
		s.refuseAll(err)
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	if err == nil {
		err = s.unfit(config)
	}
	if err != nil {
		s.refuseAll(fmt.Errorf("%w: %w", sema.ErrInvalid, err))
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	s.noteConfig(config)
	peer := protocol.NewPeer(sent, session, config, by)
	if peer.Ended(s.client.clock()) {
		return fmt.Errorf("the answer to open took %v, longer than a session is to be trusted", micros(s.client.clock()-sent))
	}
	s.peer = peer
	s.tellMismatch(config)
	if s.counts.Sessions == 0 {
		s.watchModes(s.client.clock())
	}
	s.counts.Sessions++
	for _, ticket := range slices.Sorted(maps.Keys(s.waiters)) {
		s.peer.Wish(s.waiters[ticket].op)
	}
	if s.pool.asked.Ticket != 0 {
		s.peer.Wish(s.pool.asked)
	}
	return nil
}

// unfit is why what is stored is of no use here.
func (s *Semaphore) unfit(stored protocol.Config) error {
	switch {
	case s.settings.mode == ModePooled && stored.Kind == protocol.Rate:
		return errors.New("it is a rate, and cannot be pooled")
	case s.lender != nil:
		return s.lender.accepts(stored)
	}
	return nil
}

// errRefused wraps the errors that are replies of the store.
var errRefused = errors.New("rejected by the store")

// errForgotten is the reply of a store that does not know the session.
var errForgotten = fmt.Errorf("%w: unknown session", errRefused)

// send says a batch and hears the answer, if it comes while it still counts.
func (s *Semaphore) send(b protocol.Batch, within time.Duration) error {
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
		s.leaving = 0
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
	s.heed(reply)
	if s.waits() {
		s.watchModes(now)
	}
	s.tellLender(reply)
	s.noteHeard()
	if s.monitor != nil && len(b.Ops) == 0 && len(s.leases) > 0 {
		s.tellLater(sema.Event{Kind: sema.EventRenewed, Weight: s.held()})
	}
	return nil
}

// noteConfig is for what was heard. Who waits here for more than there can ever
// be is told. The mutex is held.
func (s *Semaphore) noteConfig(c protocol.Config) {
	if c.Draining && !s.draining() {
		s.fallback.sendBack()
	}
	s.last.Config = c
	s.capacity.Store(max(c.Capacity, c.Whole))
	for q := range s.pool.line.All {
		if s.tooLarge(q.weight) {
			q.refuse(sema.ErrTooLarge)
		}
	}
}

// tooLarge reports whether nobody can ever have so much, as far as is known. The
// mutex is held.
func (s *Semaphore) tooLarge(n int64) bool {
	capacity := s.capacity.Load()
	return s.last.Config.TTL != 0 && capacity > 0 && n > capacity
}

// A lender lends permits on, and is told what the engine says of them. Both are
// called with the semaphore's mutex held.
type lender interface {
	accepts(stored protocol.Config) error
	heard(protocol.Reply)
}

// speaks reports whether there is a session.
func (s *Semaphore) speaks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peer != nil
}

// tellLender tells who lends blocks on. The mutex is held.
func (s *Semaphore) tellLender(r protocol.Reply) {
	if s.lender != nil {
		s.lender.heard(r)
	}
}

// resolve ends a waiter, or a lease, as the store says. The mutex is held.
func (s *Semaphore) resolve(f protocol.Result) {
	if f.Kind == protocol.Revoked {
		s.revoked(f)
		return
	}
	if f.Ticket == s.pool.asked.Ticket {
		s.poolResult(f)
		return
	}
	w := s.removeLocked(f.Ticket)
	switch {
	case w == nil:
	case w.of != nil:
		s.attach(w.of, f)
	case f.Kind != protocol.Granted:
		r := result{err: f.Kind.Err()}
		if protocol.MayChange(r.err) {
			r.after = micros(s.last.Undecided)
		}
		w.ended <- r
	case s.settings.mode == ModePooled:
		s.addBlock(f)
		w.ended <- result{}
	default:
		s.counts.Grants++
		s.tally.Acquired++
		w.ended <- result{lease: s.lend(f, w.op.Pooled)}
	}
}

// noteQueued notifies the callers whose requests were sent and are not decided. The
// mutex is held.
func (s *Semaphore) noteQueued(ops []protocol.Op) {
	for _, op := range ops {
		if w := s.waiters[op.Ticket]; w != nil && !op.Try && op.Verb == protocol.Acquire {
			s.tally.queue(w.call)
			w.noteQueued()
		}
	}
}

// refuseAll ends all who wait. The mutex is held.
func (s *Semaphore) refuseAll(why error) {
	for ticket := range s.waiters {
		s.removeLocked(ticket).ended <- result{err: why}
		s.unask(ticket)
	}
	s.refuseLine(why)
}

// lose ends the session: its leases are lost, those who wait will stand in line
// in another one. The mutex is held.
func (s *Semaphore) lose(why string) {
	moot := int64(s.peer.Unheard(protocol.Release))
	s.counts.Unconfirmed += moot
	if why != errForgotten.Error() { // or it is known that nothing is held
		s.unsaid += moot
	}
	s.peer = nil
	s.counts.SessionsLost++
	s.tellLender(protocol.Reply{Config: s.last.Config})
	for seq, g := range s.leases {
		delete(s.leases, seq)
		s.loseGrant(g, why)
	}
	s.losePool(why)
	s.endSplits()
	for _, u := range s.unheard {
		u.end(why)
	}
	s.unheard = nil
}
