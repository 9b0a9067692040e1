package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Semaphore is a semaphore of the fleet, as this process uses it. It is a
// [sema.Gate].
type Semaphore struct {
	client  *Client
	name    string
	options Options
	config  protocol.Config // to make it with
	maxWait time.Duration
	news    chan struct{} // buffered: there is something to do for the driver

	mu         sync.Mutex
	peer       *protocol.Peer // nil while there is no session
	lastTicket protocol.Ticket
	waiters    map[protocol.Ticket]*waiter
	leases     map[protocol.Seq]*grant // of the session
	driven     bool
	used       protocol.Micros // when the driver last saw the session in use
	closed     bool
	quiet      chan struct{}   // closed when nothing is out or unsaid; nil unless somebody wants to know
	saying     []chan struct{} // closed when nothing is unsaid
	trouble    error           // why the engine was not reached, last
}

// A waiter is one acquire. Whoever takes it out of Semaphore.waiters decides
// how it ends.
type waiter struct {
	op    protocol.Op
	ended chan outcome // buffered
}

type outcome struct {
	lease *lease
	err   error
}

func newSemaphore(c *Client, name string, o Options, config protocol.Config) *Semaphore {
	s := &Semaphore{
		client: c, name: name, options: o, config: config, maxWait: o.MaxWait, news: make(chan struct{}, 1),
		waiters: map[protocol.Ticket]*waiter{}, leases: map[protocol.Seq]*grant{},
	}
	if s.maxWait == 0 {
		s.maxWait = defaultMaxWait
	}
	return s
}

// Name is the semaphore's name.
func (s *Semaphore) Name() string { return s.name }

// Scope is where [sema.AcquireAll] orders it.
func (s *Semaphore) Scope() sema.Scope { return sema.FleetScope }

// Acquire waits for n permits, in its turn among all machines. It fails with the
// context's cause when that ends first; with ErrTimeout when MaxWait has passed,
// or ErrUnavailable if the engine could not be reached; and like
// [sema.Semaphore.Acquire].
func (s *Semaphore) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	return s.acquire(ctx, "acquire", protocol.Op{Verb: protocol.Acquire, Weight: n})
}

// TryAcquire takes n permits if they are free and nobody waits, or else fails
// with ErrFull. It asks the engine, which may take a moment longer if somebody
// has been silent for so long that it may be dead.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	return s.acquire(ctx, "try", protocol.Op{Verb: protocol.Acquire, Weight: n, Try: true})
}

func (s *Semaphore) acquire(ctx context.Context, op string, wish protocol.Op) (sema.Permit, error) {
	start := time.Now()
	granted, err := s.await(ctx, op, wish)
	if err != nil {
		s.refused(ctx, wish.Weight, start, err)
		return sema.Permit{}, err
	}
	if granted == nil {
		return sema.Permit{}, nil
	}
	return s.admitted(granted, start), nil
}

// await asks and waits. There is no lease for a weight of 0.
func (s *Semaphore) await(ctx context.Context, op string, wish protocol.Op) (*lease, error) {
	switch {
	case ctx == nil:
		return nil, s.fault(op, wish.Weight, sema.ErrInvalid, "nil context; pass context.Background() to wait without limit")
	case wish.Weight < 0:
		return nil, s.fault(op, wish.Weight, sema.ErrInvalid, "want a weight of 0 or more")
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok {
		wish.Wait = max(1, protocol.Micros(time.Until(deadline).Microseconds()))
	}
	w := &waiter{op: wish, ended: make(chan outcome, 1)}
	if err := s.ask(op, w); err != nil || wish.Weight == 0 {
		return nil, err
	}
	s.tellQueued(w)
	limit := time.NewTimer(s.maxWait)
	defer limit.Stop()
	select {
	case o := <-w.ended:
		if wish.Wait > 0 && errors.Is(o.err, sema.ErrTimeout) {
			<-ctx.Done() // the engine's clock was ahead; this is about the context's deadline
		}
		if ctx.Err() != nil {
			if o.lease != nil {
				o.lease.giveBack()
			}
			return nil, context.Cause(ctx)
		}
		if o.err != nil {
			return nil, s.fault(op, wish.Weight, o.err, "")
		}
		return o.lease, nil
	case <-ctx.Done():
		s.withdraw(w)
		return nil, context.Cause(ctx)
	case <-limit.C:
		s.withdraw(w)
		return nil, s.timeout(op, wish.Weight)
	}
}

// ask puts a waiter's wish into the next batch.
func (s *Semaphore) ask(op string, w *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.fault(op, w.op.Weight, sema.ErrClosed, "")
	}
	if w.op.Weight == 0 {
		if s.peer != nil && s.peer.Config().Draining {
			return s.fault(op, 0, sema.ErrDraining, "")
		}
		return nil
	}
	s.lastTicket++
	w.op.Ticket = s.lastTicket
	s.waiters[w.op.Ticket] = w
	if s.peer != nil {
		s.peer.Wish(w.op)
	}
	s.drive()
	return nil
}

// withdraw takes a waiter's wish back. What it was granted meanwhile is
// released.
func (s *Semaphore) withdraw(w *waiter) {
	s.mu.Lock()
	_, waiting := s.waiters[w.op.Ticket]
	if waiting {
		delete(s.waiters, w.op.Ticket)
		if s.peer != nil {
			s.peer.Wish(protocol.Op{Verb: protocol.Cancel, Ticket: w.op.Ticket})
		}
		s.drive()
	}
	s.mu.Unlock()
	if !waiting {
		if o := <-w.ended; o.lease != nil {
			o.lease.giveBack()
		}
	}
}

// hint has the driver ask for news.
func (s *Semaphore) hint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peer != nil {
		s.peer.Hint(s.client.clock())
		s.drive()
	}
}

// close refuses everybody who waits or comes.
func (s *Semaphore) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for ticket, w := range s.waiters {
		delete(s.waiters, ticket)
		w.ended <- outcome{err: sema.ErrClosed}
		if s.peer != nil {
			s.peer.Wish(protocol.Op{Verb: protocol.Cancel, Ticket: ticket})
		}
	}
	if s.peer != nil {
		s.drive()
	}
}

// drain waits until nothing is out or unsaid, and says how much is left.
func (s *Semaphore) drain(ctx context.Context) (left int64) {
	s.mu.Lock()
	s.quiet = make(chan struct{})
	quiet := s.quiet
	s.noteQuiet()
	s.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.leases {
		left += g.out
	}
	return left
}

// noteQuiet tells who drains or flushes. The mutex is held.
func (s *Semaphore) noteQuiet() {
	if s.peer == nil || s.peer.Heard() >= s.peer.Promise(maxOps) {
		for _, said := range s.saying {
			close(said)
		}
		s.saying = nil
	}
	if s.quiet != nil && len(s.leases) == 0 && (s.peer == nil || s.peer.Idle()) {
		close(s.quiet)
		s.quiet = nil
	}
}

func (s *Semaphore) fault(op string, n int64, err error, detail string) error {
	return &sema.Error{Op: op, Name: s.name, Weight: n, Capacity: s.options.Capacity, Err: err, Detail: detail}
}

func (s *Semaphore) timeout(op string, n int64) error {
	s.mu.Lock()
	trouble := s.trouble
	s.mu.Unlock()
	if trouble != nil {
		return s.fault(op, n, sema.ErrUnavailable, fmt.Sprintf("for %v: %v", s.maxWait, trouble))
	}
	return s.fault(op, n, sema.ErrTimeout, s.maxWait.String())
}

var _ sema.Gate = (*Semaphore)(nil)
