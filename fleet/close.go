package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Parting is what becomes of the permits that are out when a client is closed.
type Parting uint8

const (
	// WaitForPermits until all are released, or the context ends; then they are
	// abandoned.
	WaitForPermits Parting = iota
	// ReleasePermits gives them back at once: right when what they were for has
	// been stopped.
	ReleasePermits
	// AbandonPermits leaves them to the engine, which frees them when their TTL
	// has passed: right when what they were for goes on without this process.
	AbandonPermits
)

// Close refuses who waits and who comes, says all releases to the engine, and
// deals with the permits that are out: it waits for them, unless told otherwise.
// When that is done, or ctx has ended, it lets go of the engine. Permits that
// are still out then are lost. The error says how many were, unless that was
// wanted, and how many releases the engine has not heard of.
func (c *Client) Close(ctx context.Context, then ...Parting) error {
	parting := WaitForPermits
	for _, p := range then {
		parting = p
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
		s.close(parting)
	}
	var left, unsaid int64
	for _, s := range all {
		out, moot := s.drain(ctx, parting)
		left += out
		unsaid += moot
	}
	c.workers.end()
	for _, s := range all {
		s.finish()
	}
	err := c.store.Close()
	if left > 0 && parting == WaitForPermits {
		err = errors.Join(err, &sema.Error{Op: "close", Err: context.Cause(ctx),
			Detail: fmt.Sprintf("%d permits were not released; they are free when their TTL has passed", left)})
	}
	if unsaid > 0 {
		err = errors.Join(err, &sema.Error{Op: "close", Err: sema.ErrUnavailable,
			Detail: fmt.Sprintf("the engine has not heard of %d releases; they are free when their TTL has passed", unsaid)})
	}
	return err
}

// close refuses everybody who waits or comes.
func (s *Semaphore) close(parting Parting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.unsaid = 0
	s.fallback.close()
	s.refuseAll(sema.ErrClosed)
	if s.pool.front != nil {
		s.retire()
		s.publish()
	}
	if s.peer == nil {
		return
	}
	if parting == ReleasePermits {
		s.leaving = int64(s.peer.Unheard(protocol.Release)) + s.held()
		s.dropAll()
		s.peer.Leave()
	}
	s.drive()
}

// part closes one that nobody needs any more, while the client goes on. It
// reports whether the engine has heard of it before ctx ended.
func (s *Semaphore) part(ctx context.Context) bool {
	s.close(WaitForPermits)
	out, unsaid := s.drain(ctx, WaitForPermits)
	return out == 0 && unsaid == 0
}

const closedAway = "the client was closed"

// dropAll loses all that is out. The mutex is held.
func (s *Semaphore) dropAll() {
	for seq, g := range s.leases {
		delete(s.leases, seq)
		s.loseGrant(g, closedAway)
	}
	s.losePool(closedAway)
}

// drain waits until there is nothing left to say, and says how much is out and
// how many releases were not heard.
func (s *Semaphore) drain(ctx context.Context, parting Parting) (out, unsaid int64) {
	s.mu.Lock()
	if s.quiet == nil {
		s.quiet = make(chan struct{})
	}
	quiet := s.quiet
	s.abandoning = parting == AbandonPermits
	s.noteQuiet()
	s.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
	if parting == WaitForPermits && s.fallback != nil {
		s.fallback.local.WaitIdle(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unsaid = s.unsaid
	switch {
	case parting == ReleasePermits:
		unsaid = s.leaving
	case s.peer != nil:
		unsaid += int64(s.peer.Unheard(protocol.Release))
	}
	return s.held() + s.fallback.stats().InUse, unsaid
}

// noteQuiet tells who drains. The mutex is held.
func (s *Semaphore) noteQuiet() {
	if s.quiet == nil {
		return
	}
	// A session that is done with says goodbye, and is no more.
	if s.peer == nil || s.abandoning && s.held() > 0 && s.peer.Heard() >= s.peer.Promise(maxOps) {
		close(s.quiet)
		s.quiet = nil
	}
}

// finish is when the client is at its end: nobody renews what is still out.
func (s *Semaphore) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.driver.alarm != nil {
		s.driver.alarm.Stop()
	}
	s.dropAll()
	for _, u := range s.unheard {
		u.end(closedAway)
	}
	s.unheard = nil
}
