package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A CloseMode selects what happens to held permits when a client or a semaphore is
// closed.
type CloseMode uint8

const (
	// CloseWait waits until they are released or the context ends; then they are
	// abandoned. The default.
	CloseWait CloseMode = iota
	// CloseRelease releases them at once, for work that has been stopped.
	CloseRelease
	// CloseAbandon leaves them to the store, which frees them after their TTL, for work
	// that goes on without this process.
	CloseAbandon
)

// closeMode returns the last of the modes that a caller gave.
func closeMode(given []CloseMode) (mode CloseMode, err error) {
	for _, mode = range given {
		if mode > CloseAbandon {
			return mode, &sema.Error{Op: "close", Err: sema.ErrInvalid, Detail: fmt.Sprintf("mode %d", mode)}
		}
	}
	return mode, nil
}

// Close rejects waiters and new acquires of all semaphores, flushes pending releases
// and, by default, waits for held permits. When that is done or ctx has ended, it closes
// the store, and permits that are still held are lost. The error says how many were, if
// Close waited for them, and how many releases the store has not confirmed.
func (c *Client) Close(ctx context.Context, mode ...CloseMode) error {
	if err := checkContext(ctx, "close", ""); err != nil {
		return err
	}
	how, err := closeMode(mode)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return &sema.Error{Op: "close", Err: sema.ErrClosed}
	}
	c.closed = true
	c.mu.Unlock()
	all := c.all() // there will be no other ones
	for _, s := range all {
		s.close(how)
	}
	var left leftover
	for _, s := range all {
		left.add(s.drain(ctx, how))
	}
	c.workers.end()
	for _, s := range all {
		s.finish()
		s.report(sema.Event{Kind: sema.EventClosed})
	}
	return errors.Join(c.store.Close(), left.err(ctx, "", how))
}

// Close ends the use of the semaphore by this client, as [Client.Close] does for all of
// them. [Client.Semaphore] returns a new one after that.
func (s *Semaphore) Close(ctx context.Context, mode ...CloseMode) error {
	if err := checkContext(ctx, "close", s.settings.label); err != nil {
		return err
	}
	how, err := closeMode(mode)
	if err != nil {
		return err
	}
	s.client.forget(s)
	if !s.close(how) {
		return s.fault("close", 0, sema.ErrClosed, "")
	}
	var left leftover
	left.add(s.drain(ctx, how))
	s.finish()
	s.report(sema.Event{Kind: sema.EventClosed})
	return left.err(ctx, s.settings.label, how)
}

// A leftover is what could not be settled when a semaphore was closed.
type leftover struct{ held, unconfirmed int64 }

func (l *leftover) add(held, unconfirmed int64) {
	l.held += held
	l.unconfirmed += unconfirmed
}

func (l *leftover) err(ctx context.Context, name string, mode CloseMode) (err error) {
	if l.held > 0 && mode == CloseWait {
		err = &sema.Error{Op: "close", Name: name, Err: context.Cause(ctx), Detail: fmt.Sprintf("%d permits were not released; they are free after their TTL", l.held)}
	}
	if l.unconfirmed > 0 {
		err = errors.Join(err, &sema.Error{Op: "close", Name: name, Err: sema.ErrUnavailable,
			Detail: fmt.Sprintf("the store has not confirmed %d releases; they are free after their TTL", l.unconfirmed)})
	}
	return err
}

// close rejects all waiters and new acquires. It reports whether it is the first to do
// so.
func (s *session) close(mode CloseMode) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.closed = true
	s.ending.unconfirmed = 0
	s.failOpen.close()
	s.rejectAll(sema.ErrClosed)
	if s.peer == nil {
		return true
	}
	if mode == CloseRelease {
		s.ending.leaving = int64(s.peer.Unheard(protocol.Release)) + s.strategy.held()
		s.strategy.lose(closedAway)
		s.peer.Leave()
	}
	s.drive()
	return true
}

// part closes the semaphore of a region, while the client goes on. It reports whether
// the store has confirmed that before ctx ended.
func (s *session) part(ctx context.Context) bool {
	s.close(CloseWait)
	held, unconfirmed := s.drain(ctx, CloseWait)
	return held == 0 && unconfirmed == 0
}

const closedAway = "the client was closed"

// ending is what the end of a session waits for, and leaves behind.
type ending struct {
	quiet       chan struct{} // closed when there is nothing left to send; nil unless a caller waits for it
	abandons    bool          // held permits do not count for that
	unconfirmed int64         // releases of lost sessions that the store has not confirmed, since close
	leaving     int64         // permits that were held, and releases unconfirmed, when the session was ended; 0 when the store has confirmed that
}

// drain waits until there is nothing left to send, and returns how much is held and how
// many releases were not confirmed.
func (s *session) drain(ctx context.Context, mode CloseMode) (held, unconfirmed int64) {
	s.mu.Lock()
	if s.ending.quiet == nil {
		s.ending.quiet = make(chan struct{})
	}
	quiet := s.ending.quiet
	s.ending.abandons = mode == CloseAbandon
	s.noteQuiet()
	s.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
	if mode == CloseWait && s.failOpen != nil {
		s.failOpen.local.WaitIdle(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unconfirmed = s.ending.unconfirmed
	switch {
	case mode == CloseRelease:
		unconfirmed = s.ending.leaving
	case s.peer != nil:
		unconfirmed += int64(s.peer.Unheard(protocol.Release))
	}
	return s.strategy.held() + s.failOpen.stats().InUse, unconfirmed
}

// noteQuiet ends a drain when there is nothing left to send. The mutex is held.
func (s *session) noteQuiet() {
	e := &s.ending
	if e.quiet == nil {
		return
	}
	// A session that is not needed any more is ended at the store, and is nil then.
	if s.peer == nil || e.abandons && s.strategy.held() > 0 && s.peer.Replied() >= s.peer.Promise(maxOps) {
		close(e.quiet)
		e.quiet = nil
	}
}

// finish ends the session without a word to the store: nobody renews what is still held.
func (s *session) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.driver.alarm != nil {
		s.driver.alarm.Stop()
	}
	s.strategy.lose(closedAway)
	s.peer = nil
	s.endFlushes(closedAway)
}
