package scope

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A fleetSemaphore is a semaphore of a store.
type fleetSemaphore struct {
	scope    fleetScope
	gate     *fleet.Semaphore
	wait     time.Duration
	compared *mismatches
}

// Acquire implements [Semaphore]. It acquires in a new goroutine, so that no call site of this
// program is stored with the lease.
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

// Standing implements [Semaphore].
func (s *fleetSemaphore) Standing(ctx context.Context) (Standing, error) {
	name := s.gate.Name()
	info, err := s.scope.info(ctx, name)
	if err != nil {
		return Standing{}, err
	}
	own := func(w fleet.Waiter) bool { return w.Client == s.scope.Instance() }
	return Standing{State: withParticipants(info), Position: slices.IndexFunc(info.Waiters, own) + 1}, nil
}

// A fleetHold is a permit with a lease.
//
// Another holder is admitted a third of the stored TTL after a loss, at the earliest. When the
// permit is granted, Left is at most two thirds of the TTL, so half of Left is at most that
// third. The command gets three quarters of this half; the rest is a reserve for busy machines.
type fleetHold struct {
	permit sema.Permit
	lease  fleet.Lease
	after  time.Duration // time that a command may run after a loss
	done   chan struct{}

	mu        sync.Mutex
	heldUntil time.Time // end of the lease on the wall clock, which continues while the machine sleeps
}

func newFleetHold(p sema.Permit) *fleetHold {
	lease, _ := fleet.LeaseOf(p)
	h := &fleetHold{permit: p, lease: lease, after: lease.Left / 2 * 3 / 4, done: make(chan struct{})}
	h.setEnd(lease.Left)
	if h.expires() {
		go h.follow(lease.Left / 8)
	}
	return h
}

// expires reports whether the lease can expire. The permits of a rate have no lease.
func (h *fleetHold) expires() bool { return h.lease.Fence.Seq != 0 }

// follow records the end of the lease, so that Deadline is right if a loss is noticed late.
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
			h.setEnd(lease.Left)
		}
	}
}

func (h *fleetHold) setEnd(left time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heldUntil = time.Now().Round(0).Add(left)
}

// Slots implements [Hold].
func (h *fleetHold) Slots() []int64 { return h.permit.Slots() }

// Environment implements [Hold].
func (h *fleetHold) Environment() []string {
	environment := []string{"SEMA_NAME=" + h.lease.Semaphore, "SEMA_LEASE=" + number(h.lease.ID)}
	if f := h.lease.Fence; h.expires() {
		environment = append(environment, "SEMA_FENCE="+number(f.Seq), "SEMA_FENCE_FLOOR="+number(f.Floor))
	}
	return environment
}

func number(s fleet.LeaseID) string { return strconv.FormatUint(uint64(s), 10) }

// Attach implements [Hold]. The command is killed with this process, which renews the lease, if
// the system supports that.
func (h *fleetHold) Attach(cmd *exec.Cmd) error {
	killWithParent(cmd)
	return nil
}

func (h *fleetHold) Lost() <-chan struct{} { return h.permit.Lost() }

func (h *fleetHold) Err() error { return h.permit.Err() }

// Left implements [Hold].
func (h *fleetHold) Left() (time.Duration, bool) {
	lease, _ := fleet.LeaseOf(h.permit)
	return lease.Left, h.expires()
}

// Deadline implements [Hold].
func (h *fleetHold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	// A lease may be revoked before it expires.
	heldUntil := h.heldUntil
	if now := time.Now().Round(0); heldUntil.After(now) {
		heldUntil = now
	}
	return heldUntil.Add(h.after)
}

// Release implements [Hold].
func (h *fleetHold) Release(ctx context.Context) error {
	close(h.done)
	return fleet.Release(ctx, h.permit)
}

// A mismatches warns once if the stored configuration differs from the wanted one.
type mismatches struct {
	scope  fleetScope
	want   Want
	mu     sync.Mutex // held while warning
	warned bool
}

// Observe implements [sema.Observer].
func (m *mismatches) Observe(e sema.Event) {
	if e.Kind != sema.EventMismatched {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.warned {
		m.warned = true
		m.warn()
	}
}

// settle waits for a warning in progress. The event arrives a round trip before any permit.
func (m *mismatches) settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
}

func (m *mismatches) warn() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	found, err := m.scope.Inspect(ctx, m.want.Name)
	if err != nil {
		return
	}
	for _, d := range Differences(m.want, found) {
		m.want.Warn(d.Facts, d.Advice)
	}
}

// A Difference is a setting whose stored value is not the wanted one.
type Difference struct{ Facts, Advice string }

// Differences compares the wanted and the stored settings.
func Differences(w Want, found State) (all []Difference) {
	if n := w.Capacity; n != 0 && n != found.Capacity {
		all = append(all, Difference{fmt.Sprintf("%q has a capacity of %d, not %d: the stored capacity applies", w.Name, found.Capacity, n),
			fmt.Sprintf("'sema set %s --capacity %d' changes it for all users", printable.Arg(w.Name), n)})
	}
	if w.TTL != 0 && Duration(w.TTL) != found.TTL {
		all = append(all, Difference{Facts: fmt.Sprintf("%q has a TTL of %v, not %v: the stored TTL applies", w.Name, time.Duration(found.TTL), w.TTL)})
	}
	return all
}

// isReply reports whether an error is a reply of the store, or comes from package fleet.
func isReply(err error) bool {
	for _, reply := range []error{
		sema.ErrFull, sema.ErrTimeout, sema.ErrTooLarge, sema.ErrDraining, sema.ErrInvalid, sema.ErrLost, sema.ErrClosed,
		protocol.ErrConflict, errors.ErrUnsupported,
	} {
		if errors.Is(err, reply) {
			return true
		}
	}
	return false
}
