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
	// CloseWait waits until held permits are released or the context ends. Permits that
	// are held then are abandoned. The default.
	CloseWait CloseMode = iota
	// CloseRelease releases held permits immediately, for work that has been stopped.
	CloseRelease
	// CloseAbandon leaves held permits to the store, which frees them after their TTL, for
	// work that continues without this process.
	CloseAbandon
)

// closeMode returns the last of the given modes, CloseWait if there is none.
func closeMode(given []CloseMode) (mode CloseMode, err error) {
	for _, mode = range given {
		if mode > CloseAbandon {
			return mode, &sema.Error{Op: "close", Err: sema.ErrInvalid, Detail: fmt.Sprintf("mode %d", mode)}
		}
	}
	return mode, nil
}

// Close rejects waiters and new acquires of all semaphores, flushes pending releases
// and, by default, waits for held permits. Then, or when ctx ends, it closes the store;
// permits that are still held are lost. The error contains the number of releases that
// the store has not confirmed and, with CloseWait, the number of permits still held.
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
	all := c.allSemaphores() // closed is set: no semaphore is added any more
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

// Close closes the semaphore for this client only, as [Client.Close] closes all of them.
// [Client.Semaphore] returns a new one after that.
func (s *Semaphore) Close(ctx context.Context, mode ...CloseMode) error {
	if err := checkContext(ctx, "close", s.settings.label); err != nil {
		return err
	}
	how, err := closeMode(mode)
	if err != nil {
		return err
	}
	s.client.remove(s)
	if !s.close(how) {
		return s.fault("close", 0, sema.ErrClosed, "")
	}
	var left leftover
	left.add(s.drain(ctx, how))
	s.finish()
	s.report(sema.Event{Kind: sema.EventClosed})
	return left.err(ctx, s.settings.label, how)
}

// A leftover counts what could not be settled when semaphores were closed.
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

// close rejects all waiters and new acquires. It returns false if the session was closed
// before.
func (s *session) close(mode CloseMode) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.closed = true
	s.ending.unconfirmed = 0
	s.failOpen.closeLocked()
	s.rejectAllLocked(sema.ErrClosed)
	if s.peer == nil {
		return true
	}
	if mode == CloseRelease {
		s.ending.unconfirmedEnd = int64(s.peer.Unconfirmed(protocol.Release)) + s.strategy.heldLocked()
		s.strategy.loseLocked(reasonClosed)
		s.peer.Leave()
	}
	s.startDriverLocked()
	return true
}

// closeLent closes a semaphore of a keeper while the client stays open. It reports whether
// the store confirmed all releases before ctx ended.
func (s *session) closeLent(ctx context.Context) bool {
	s.close(CloseWait)
	held, unconfirmed := s.drain(ctx, CloseWait)
	return held == 0 && unconfirmed == 0
}

const reasonClosed = "the client was closed"

// An ending is the state of closing a session.
type ending struct {
	drained        chan struct{} // closed when nothing is left to send; nil unless a caller waits for it
	abandons       bool          // drained does not wait for held permits
	unconfirmed    int64         // releases of lost sessions that the store has not confirmed, since close
	unconfirmedEnd int64         // permits held and releases unconfirmed when CloseRelease ended the session; 0 after the store has confirmed the end
}

// drain waits until nothing is left to send, or ctx ends. It returns the number of held
// permits and of releases that the store has not confirmed.
func (s *session) drain(ctx context.Context, mode CloseMode) (held, unconfirmed int64) {
	s.mu.Lock()
	if s.ending.drained == nil {
		s.ending.drained = make(chan struct{})
	}
	drained := s.ending.drained
	s.ending.abandons = mode == CloseAbandon
	s.endDrainLocked()
	s.mu.Unlock()
	select {
	case <-drained:
	case <-ctx.Done():
	}
	if mode == CloseWait && s.failOpen != nil && !s.isRate() { // permits of a rate are not released
		s.failOpen.local.WaitIdle(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unconfirmed = s.ending.unconfirmed
	switch {
	case mode == CloseRelease:
		unconfirmed = s.ending.unconfirmedEnd
	case s.peer != nil:
		unconfirmed += int64(s.peer.Unconfirmed(protocol.Release))
	}
	held = s.strategy.heldLocked()
	if !s.isRateLocked() {
		held += s.failOpen.stats().InUse
	}
	return held, unconfirmed
}

// endDrainLocked closes the drained channel if nothing is left to send.
func (s *session) endDrainLocked() {
	e := &s.ending
	// After close, an idle session is ended at the store; then the peer is nil.
	if s.peer == nil || e.abandons && s.strategy.heldLocked() > 0 && s.peer.Replied() >= s.peer.LastSeq(maxOps) {
		close(e.drained)
		e.drained = nil
	}
}

// finish ends the session without a request to the store. Permits that are still held are
// lost, since they are not renewed any more.
func (s *session) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.driver.alarm != nil {
		s.driver.alarm.Stop()
	}
	if s.pause.timer != nil {
		s.pause.timer.Stop()
	}
	s.strategy.loseLocked(reasonClosed)
	s.peer = nil
	s.endFlushesLocked(reasonClosed)
}
