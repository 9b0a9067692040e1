package scope

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
)

// A fleetScope contains the semaphores of a store.
type fleetScope struct {
	*fleet.Client
	service getter // nil: the store is no service
}

// Of returns the scope of a store. Closing it closes the store.
func Of(opened fleet.Store) Scope {
	service, _ := opened.(getter)
	return fleetScope{fleet.New(opened), service}
}

func (fleetScope) Host() bool { return false }

// Close implements [Scope]. All permits were released before, or their commands have ended.
func (s fleetScope) Close(ctx context.Context) error {
	return s.Client.Close(ctx, fleet.CloseRelease)
}

// Names implements [Scope].
func (s fleetScope) Names(ctx context.Context, prefix string) ([]string, error) {
	names, err := s.Client.List(ctx, prefix)
	return names, reached(err)
}

// List implements [Scope]. The states have no holders and waiters.
func (s fleetScope) List(ctx context.Context, prefix string, p Page) (Listing, error) {
	l := Listing{States: []State{}}
	for one, err := range s.Client.Summaries(ctx, prefix, p.After) {
		switch {
		case err != nil:
			return Listing{}, reached(err)
		case p.Limit > 0 && len(l.States) == p.Limit:
			l.More, l.Next = l.More+1, l.States[p.Limit-1].Name
		default:
			l.States = append(l.States, stateOf(one.Name, one.Config, one.Effective, one.InUse, one.Waiters))
		}
	}
	return l, nil
}

// Now implements [Scope].
func (s fleetScope) Now(ctx context.Context) time.Time {
	if now, err := s.Client.Ping(ctx); err == nil && !now.IsZero() {
		return now
	}
	return time.Now()
}

// Inspect implements [Scope].
func (s fleetScope) Inspect(ctx context.Context, name string) (State, error) {
	info, err := s.info(ctx, name)
	return withParticipants(info), err
}

// info reads a semaphore.
func (s fleetScope) info(ctx context.Context, name string) (fleet.Info, error) {
	info, err := s.Client.Info(ctx, name)
	if isMissing(err) {
		err = &sema.Error{Op: "inspect", Name: name, Err: fs.ErrNotExist}
	}
	return info, reached(err)
}

// stateOf returns a state without holders and waiters.
func stateOf(name string, c fleet.Config, effective, inUse int64, waiting int) State {
	state := State{
		Name: name, Kind: "concurrency", Capacity: c.Capacity, Effective: effective, InUse: inUse, Free: max(0, effective-inUse),
		Waiting: waiting, Draining: c.Draining, Numbered: c.Numbered, Declared: c.Version == 0, TTL: Duration(c.TTL), Ramp: c.Ramp, MaxWaiters: maxWaiters(int64(c.MaxWaiters)),
	}
	if c.Rate != 0 {
		state.Kind, state.Window = "rate", Duration(c.Rate)
	}
	return state
}

// withParticipants returns a state with holders and waiters.
func withParticipants(info fleet.Info) State {
	state := stateOf(info.Name, info.Config, info.Effective, info.InUse, len(info.Waiters))
	state.Holders = []Participant{}
	for _, h := range info.Holders {
		p := participant(h.Caller, h.Weight, h.Since)
		p.Lease, p.Seen, p.Revoked, p.Pooled, p.Slots = uint64(h.Lease), h.Renewed, h.Revoked, h.Pooled, SlotsOf(h.Slots)
		state.Holders = append(state.Holders, p)
	}
	for _, w := range info.Waiters {
		state.Waiters = append(state.Waiters, participant(w.Caller, w.Weight, w.Since))
	}
	return state
}

// labels returns the labels that are stored with a lease.
func (w Want) labels() map[string]string {
	labels := map[string]string{"command": w.Command}
	if w.About != "" {
		labels["about"] = w.About
	}
	return labels
}

// participant describes a client that holds or waits.
func participant(c fleet.Caller, weight int64, since time.Time) Participant {
	return Participant{Weight: weight, About: c.About(), Host: cmp.Or(c.Host, c.Client), Process: int(c.Process), Since: since}
}

// Configure implements [Scope].
func (s fleetScope) Configure(ctx context.Context, name string, c Change) error {
	return reached(s.Client.Configure(ctx, name, func(config *fleet.Config) {
		for _, change := range []struct{ from, to *int64 }{{c.Capacity, &config.Capacity}, {c.Ramp, &config.Ramp}} {
			if change.from != nil {
				*change.to = *change.from
			}
		}
		if c.MaxWaiters != nil {
			config.MaxWaiters = int(c.MaxWaiters.Stored())
		}
		if c.Draining != nil {
			config.Draining = *c.Draining
		}
	}))
}

// Drain implements [Scope].
func (s fleetScope) Drain(ctx context.Context, name string) error {
	return reached(s.Client.Drain(ctx, name))
}

// Resume implements [Scope].
func (s fleetScope) Resume(ctx context.Context, name string) error {
	return reached(s.Client.Resume(ctx, name))
}

// Delete implements [Scope].
func (s fleetScope) Delete(ctx context.Context, name string) error {
	return reached(s.Client.Delete(ctx, name))
}

// Revoke implements [Scope].
func (s fleetScope) Revoke(ctx context.Context, name string, r Revocation) error {
	return reached(s.Client.Revoke(ctx, name, fleet.Revocation{Lease: fleet.LeaseID(r.Lease), AtOnce: r.AtOnce, By: operator(), Why: r.Why}))
}

// operator returns the name under which a revocation is reported to the holder.
func operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if machine, err := os.Hostname(); err == nil {
		name += "@" + machine
	}
	return name
}

// Semaphore implements [Scope].
func (s fleetScope) Semaphore(_ context.Context, w Want) (Semaphore, error) {
	compared := &mismatches{scope: s, want: w}
	options := []fleet.Option{fleet.Labels(w.labels()), sema.Observe(compared)}
	if w.TTL != 0 {
		options = append(options, fleet.TTL(w.TTL))
	}
	if w.Numbered {
		options = append(options, fleet.Numbered())
	}
	if w.Wait > 0 {
		options = append(options, sema.MaxWait(w.Wait))
	}
	gate, err := s.Client.Semaphore(w.Name, cmp.Or(w.Capacity, 1), options...)
	if err != nil {
		return nil, err
	}
	return &fleetSemaphore{scope: s, gate: gate, wait: w.Wait, compared: compared}, nil
}

// reached returns errors that are not a reply of the store as [store.Unreachable].
func reached(err error) error {
	switch {
	case err == nil || isMissing(err) || isReply(err):
		return err
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return store.Unreached(err)
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
