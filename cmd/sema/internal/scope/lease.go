package scope

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A fleetSemaphore is one from which this process wants a permit.
type fleetSemaphore struct {
	scope    fleetScope
	gate     *fleet.Semaphore
	wait     time.Duration
	compared *mismatches
}

// Acquire is for [Semaphore]. It is in a goroutine of its own so that who holds is
// not said to be a line of this program.
func (s *fleetSemaphore) Acquire(ctx context.Context, weight int64) (Hold, error) {
	acquire := s.gate.Acquire
	if s.wait == 0 {
		acquire = s.try
	}
	var permit sema.Permit
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		permit, err = acquire(ctx, weight)
	}()
	<-done
	s.compared.settle()
	if err != nil {
		return nil, err
	}
	return newFleetHold(permit), nil
}

func (s *fleetSemaphore) try(ctx context.Context, weight int64) (sema.Permit, error) {
	name := s.gate.Name()
	return Try(ctx, name, s.compared.want.Warn,
		func(ctx context.Context) (State, error) { return s.scope.Inspect(ctx, name) },
		func(ctx context.Context) (sema.Permit, error) { return s.gate.TryAcquire(ctx, weight) })
}

// Standing is for [Semaphore].
func (s *fleetSemaphore) Standing(ctx context.Context) (Standing, error) {
	snapshot, err := s.scope.Client.Inspect(ctx, s.gate.Name())
	if err != nil {
		return Standing{}, reached(err)
	}
	standing := Standing{State: StateOf(s.gate.Name(), snapshot)}
	own := map[protocol.Session]bool{}
	for _, session := range snapshot.Sessions {
		own[session.Session] = session.Client.Instance == s.scope.Instance()
	}
	for i, ticket := range snapshot.Queue {
		if own[ticket.Session] {
			standing.Position = i + 1
			break
		}
	}
	return standing, nil
}

// A fleetHold is a permit with a lease.
//
// Others are let in a third of a TTL after it is lost, at the earliest. The TTL is
// the stored one; what was left when the permit was had is at most two thirds of
// it, so that half of that is surely not too much. A quarter is kept back: a machine
// may be busy.
type fleetHold struct {
	permit sema.Permit
	lease  fleet.Lease
	after  time.Duration // for which a command may go on when it was lost
	done   chan struct{}

	mu      sync.Mutex
	trusted time.Time // until when it was held for sure, by the time of day: it goes on while the machine sleeps
}

func newFleetHold(p sema.Permit) *fleetHold {
	lease, _ := fleet.LeaseOf(p)
	h := &fleetHold{permit: p, lease: lease, after: lease.Left / 2 * 3 / 4, done: make(chan struct{})}
	h.note(lease.Left)
	if h.expires() {
		go h.follow(lease.Left / 8)
	}
	return h
}

// expires is not so of a Rate, whose permits are spent.
func (h *fleetHold) expires() bool { return h.lease.Fence.Seq != 0 }

// follow notes until when the lease is trusted, so that it is known how late it
// was when the loss is noticed.
func (h *fleetHold) follow(every time.Duration) {
	for tick := time.NewTicker(max(every, 10*time.Millisecond)); ; {
		select {
		case <-h.done:
			return
		case <-h.permit.Lost():
			return
		case <-tick.C:
		}
		if lease, _ := fleet.LeaseOf(h.permit); lease.Left > 0 {
			h.note(lease.Left)
		}
	}
}

func (h *fleetHold) note(left time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trusted = time.Now().Round(0).Add(left)
}

// Environment is for [Hold].
func (h *fleetHold) Environment() []string {
	environment := []string{"SEMA_NAME=" + h.lease.Semaphore, "SEMA_LEASE=" + number(h.lease.ID)}
	if f := h.lease.Fence; h.expires() {
		environment = append(environment, "SEMA_FENCE="+number(f.Seq), "SEMA_FENCE_FLOOR="+number(f.Floor))
	}
	return environment
}

func number(s protocol.Seq) string { return strconv.FormatUint(uint64(s), 10) }

// Attach has the command die with this process, where the system can do that.
// Nobody renews the lease then.
func (h *fleetHold) Attach(cmd *exec.Cmd) error {
	dieWithParent(cmd)
	return nil
}

func (h *fleetHold) Lost() <-chan struct{} { return h.permit.Lost() }

func (h *fleetHold) Err() error { return h.permit.Err() }

// Left is for [Hold].
func (h *fleetHold) Left() (time.Duration, bool) {
	lease, _ := fleet.LeaseOf(h.permit)
	return lease.Left, h.expires()
}

// Deadline is for [Hold].
func (h *fleetHold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	// A lease may also be taken away while it is still trusted.
	trusted := h.trusted
	if now := time.Now().Round(0); trusted.After(now) {
		trusted = now
	}
	return trusted.Add(h.after)
}

// Release is for [Hold].
func (h *fleetHold) Release(ctx context.Context) error {
	close(h.done)
	return fleet.Release(ctx, h.permit)
}

// A mismatches tells of what is stored and not what was wanted, if it was said.
type mismatches struct {
	scope fleetScope
	want  Want
	mu    sync.Mutex // held while it tells
	told  bool
}

// Observe is for [sema.Observer].
func (m *mismatches) Observe(e sema.Event) {
	if e.Kind != sema.EventMismatched {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.told {
		m.told = true
		m.tell()
	}
}

// settle waits until all is told. It was heard a round trip before any permit.
func (m *mismatches) settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
}

func (m *mismatches) tell() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	found, err := m.scope.Inspect(ctx, m.want.Name)
	if err != nil {
		return
	}
	for _, text := range Differences(m.want, found) {
		m.want.Warn(text)
	}
}

// Differences is what of a semaphore was asked for and is otherwise, for people.
func Differences(w Want, found State) (texts []string) {
	if n := w.Capacity; n != 0 && n != found.Capacity {
		texts = append(texts, fmt.Sprintf("%q has a capacity of %d, not %d; what is stored counts; 'sema set %s --capacity %d' changes it for all", w.Name, found.Capacity, n, w.Name, n))
	}
	if w.TTL != 0 && Duration(w.TTL) != found.TTL {
		texts = append(texts, fmt.Sprintf("%q has a TTL of %v, not %v; it is what it was made with", w.Name, time.Duration(found.TTL), w.TTL))
	}
	return texts
}

// answered reports whether an error is what the engine, or package fleet, says.
func answered(err error) bool {
	for _, answer := range []error{
		sema.ErrFull, sema.ErrTimeout, sema.ErrTooLarge, sema.ErrDraining, sema.ErrInvalid, sema.ErrLost, sema.ErrClosed,
		protocol.ErrConflict, errors.ErrUnsupported,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}
