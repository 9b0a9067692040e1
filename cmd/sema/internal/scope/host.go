package scope

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/host"
)

// A hostScope contains the semaphores in a directory of this machine.
type hostScope struct{ options []host.Option }

// Host returns the scope of a URL that begins with host:.
func Host(u store.URL) (Scope, error) {
	options, err := u.HostOptions()
	return hostScope{options}, err
}

func (hostScope) Host() bool { return true }

func (hostScope) Close(context.Context) error { return nil }

// Semaphore implements [Scope]. The stored configuration applies.
func (s hostScope) Semaphore(_ context.Context, w Want) (Semaphore, error) {
	if w.TTL != 0 {
		w.Warn("--ttl has no effect on host: the kernel frees a permit when its process ends", "")
	}
	opened, err := s.open(w)
	if err != nil {
		return nil, err
	}
	return &hostSemaphore{Semaphore: opened, wait: w.Wait, before: opened.Stats().Waiters}, nil
}

func (s hostScope) open(w Want) (*host.Semaphore, error) {
	if w.Capacity != 0 {
		mismatched := sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind != sema.EventMismatched {
				return
			}
			for _, d := range Differences(Want{Name: w.Name, Capacity: w.Capacity}, State{Capacity: e.Capacity}) {
				w.Warn(d.Facts, d.Advice)
			}
		}))
		return host.Open(w.Name, w.Capacity, append(slices.Clip(s.options), mismatched)...)
	}
	opened, err := s.existing(w.Name)
	if isMissing(err) {
		return host.Open(w.Name, 1, s.options...)
	}
	return opened, err
}

func (s hostScope) existing(name string) (*host.Semaphore, error) {
	return host.Open(name, host.Existing, s.options...)
}

// Names implements [Scope].
func (s hostScope) Names(ctx context.Context, prefix string) (names []string, err error) {
	all, err := s.List(ctx, prefix, Page{})
	for _, state := range all.States {
		names = append(names, state.Name)
	}
	return names, err
}

// List implements [Scope].
func (s hostScope) List(_ context.Context, prefix string, p Page) (Listing, error) {
	found, err := host.List(s.options...)
	if err != nil {
		return Listing{}, err
	}
	var names []string
	infos := map[string]host.Info{}
	for _, info := range found {
		if strings.HasPrefix(info.Name, prefix) {
			names, infos[info.Name] = append(names, info.Name), info
		}
	}
	names, listing := p.of(names)
	listing.States = make([]State, len(names))
	for i, name := range names {
		listing.States[i] = hostState(infos[name])
	}
	listing.Bad, err = s.badFiles(prefix)
	return listing, err
}

// badFiles returns the errors of damaged and foreign files in the directory whose names begin with
// a prefix or are not names of semaphores.
func (s hostScope) badFiles(prefix string) (bad []error, err error) {
	files, err := host.BadFiles(s.options...)
	for _, f := range files {
		if f.Name == "" || strings.HasPrefix(f.Name, prefix) {
			bad = append(bad, f.Err)
		}
	}
	return bad, err
}

// Now implements [Scope].
func (hostScope) Now(context.Context) time.Time { return time.Now() }

func hostState(info host.Info) State {
	s := info.Stats
	state := State{
		Name: info.Name, Kind: "concurrency", Capacity: s.Capacity, Effective: s.Capacity, InUse: s.InUse, Free: s.Free, Waiting: s.Waiters,
		Draining: s.Draining, Numbered: true, MaxWaiters: maxWaiters(int64(info.MaxWaiters)), Holders: []Participant{},
	}
	for _, h := range info.Holders {
		state.Holders = append(state.Holders, Participant{Weight: h.Weight, Since: h.Since, Process: h.PID, About: h.Command, Slots: SlotsOf(h.Slots)})
	}
	return state
}

// Inspect implements [Scope]. Only the number of waiters is known.
func (s hostScope) Inspect(ctx context.Context, name string) (state State, err error) {
	err = s.with(name, func(opened *host.Semaphore) error {
		info, err := opened.Inspect(ctx)
		state = hostState(info)
		return err
	})
	return state, err
}

// with calls do with an existing semaphore.
func (s hostScope) with(name string, do func(*host.Semaphore) error) error {
	opened, err := s.existing(name)
	if err != nil {
		return err
	}
	defer opened.Close()
	return do(opened)
}

// Configure implements [Scope]. A ramp is not supported.
func (s hostScope) Configure(ctx context.Context, name string, c Change) error {
	switch {
	case c.Ramp != nil:
		return unsupported("semaphores of this machine have no ramp", "name a store with --store")
	case c.Draining != nil && *c.Draining:
		return s.with(name, func(opened *host.Semaphore) error { return beginDrain(ctx, opened) })
	case c.Draining != nil:
		return s.Resume(ctx, name)
	}
	return s.with(name, func(opened *host.Semaphore) error {
		if c.MaxWaiters != nil {
			if err := opened.SetMaxWaiters(ctx, int(c.MaxWaiters.Stored())); err != nil {
				return err
			}
		}
		if c.Capacity == nil {
			return nil
		}
		return opened.Resize(ctx, *c.Capacity)
	})
}

// beginDrain starts a drain without waiting until the permits are released.
func beginDrain(ctx context.Context, s *host.Semaphore) error {
	for !s.Stats().Draining {
		short, cancel := context.WithTimeoutCause(ctx, time.Millisecond, errHeld)
		err := s.Drain(short)
		cancel()
		if err != nil && !errors.Is(err, errHeld) {
			return err
		}
	}
	return nil
}

var errHeld = errors.New("permits are held")

// Drain implements [Scope].
func (s hostScope) Drain(ctx context.Context, name string) error {
	return s.with(name, func(opened *host.Semaphore) error { return opened.Drain(ctx) })
}

// Resume implements [Scope].
func (s hostScope) Resume(ctx context.Context, name string) error {
	return s.with(name, func(opened *host.Semaphore) error { return opened.Resume(ctx) })
}

// Delete implements [Scope]. It fails if the semaphore is in use.
func (s hostScope) Delete(_ context.Context, name string) error {
	return host.Remove(name, s.options...)
}

// Revoke implements [Scope].
func (hostScope) Revoke(_ context.Context, name string, _ Revocation) error {
	return unsupported(fmt.Sprintf("revoke a permit of %q: it is released when the process that holds it ends", name),
		fmt.Sprintf("'sema show %s' lists the processes", name))
}

func unsupported(facts, advice string) error { return &Unsupported{facts, advice} }

// An Unsupported is the error of an operation that a scope does not support.
type Unsupported struct{ Facts, Advice string }

// Error implements error.
func (u *Unsupported) Error() string { return u.Facts }

// Hint returns what to do instead. [sema.Hint] calls it.
func (u *Unsupported) Hint() string { return u.Advice }

// Unwrap returns [errors.ErrUnsupported].
func (u *Unsupported) Unwrap() error { return errors.ErrUnsupported }

// A hostSemaphore is a semaphore of this machine.
type hostSemaphore struct {
	*host.Semaphore
	wait   time.Duration
	before int // number of waiters when the semaphore was opened
}

// Acquire implements [Semaphore].
func (h *hostSemaphore) Acquire(ctx context.Context, weight int64) (Hold, error) {
	if h.wait == 0 {
		return h.hold(h.TryAcquire(ctx, weight))
	}
	if h.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, h.wait, sema.ErrTimeout)
		defer cancel()
	}
	hold, err := h.hold(h.Semaphore.Acquire(ctx, weight))
	if errors.Is(err, sema.ErrTimeout) {
		err = h.timedOut(weight)
	}
	return hold, err
}

// timedOut returns the error of a timeout, with the current numbers.
func (h *hostSemaphore) timedOut(weight int64) error {
	fault := &sema.Error{Op: "acquire", Name: h.Name(), Weight: weight, Err: sema.ErrTimeout, Detail: h.wait.String()}
	s := h.Stats()
	fault.Capacity, fault.InUse, fault.Waiters = s.Capacity, s.InUse, s.Waiters
	return fault
}

func (h *hostSemaphore) hold(p sema.Permit, err error) (Hold, error) {
	if err != nil {
		return nil, err
	}
	return hostHold{p, h.Name()}, nil
}

// Standing implements [Semaphore]. The position is at most one more than the number of waiters
// when the semaphore was opened, and at most the current number.
func (h *hostSemaphore) Standing(ctx context.Context) (Standing, error) {
	info, err := h.Inspect(ctx)
	state := hostState(info)
	return Standing{State: state, Position: max(1, min(h.before+1, state.Waiting)), AtMost: true}, err
}

// A hostHold is a permit of this machine.
type hostHold struct {
	permit sema.Permit
	name   string
}

// Slots implements [Hold].
func (h hostHold) Slots() []int64 { return h.permit.Slots() }

// Environment implements [Hold]. There is no lease and no fence: the permit cannot expire.
func (h hostHold) Environment() []string { return []string{"SEMA_NAME=" + h.name} }

// Attach implements [Hold]. The command inherits the permit if the system supports that;
// otherwise the permit is free when this process is killed.
func (h hostHold) Attach(cmd *exec.Cmd) error {
	err := host.Inherit(h.permit, cmd)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

func (hostHold) Lost() <-chan struct{} { return nil }

// Err returns nil: a deleted file does not end the command.
func (hostHold) Err() error { return nil }

func (hostHold) Left() (time.Duration, bool) { return 0, false }

func (hostHold) Deadline() time.Time { return time.Time{} }

// Release implements [Hold].
func (h hostHold) Release(context.Context) error {
	h.permit.Release()
	return nil
}
