package scope

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A fleetScope is the semaphores of a store.
type fleetScope struct{ *fleet.Client }

// Of returns the scope of a store. Closing it closes the store.
func Of(opened fleet.Store) Scope { return fleetScope{fleet.New(opened)} }

func (fleetScope) Host() bool { return false }

// Close implements [Scope]. Every permit was released before, or its command has ended.
func (s fleetScope) Close(ctx context.Context) error {
	return s.Client.Close(ctx, fleet.CloseRelease)
}

// Names implements [Scope].
func (s fleetScope) Names(ctx context.Context, prefix string) ([]string, error) {
	names, err := s.Client.List(ctx, prefix)
	return names, reached(err)
}

// atATime is how many semaphores List reads at the same time.
const atATime = 8

// List implements [Scope]. Semaphores that are deleted meanwhile are left out.
func (s fleetScope) List(ctx context.Context, prefix string, p Page) (Listing, error) {
	names, err := s.Names(ctx, prefix)
	if err != nil {
		return Listing{}, err
	}
	names, listing := p.of(names)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found, failed := make([]State, len(names)), make([]error, len(names))
	turns := make(chan struct{}, atATime)
	var wg sync.WaitGroup
	for i, name := range names {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			if ctx.Err() != nil {
				return // another one has failed
			}
			if found[i], failed[i] = s.Inspect(ctx, name); failed[i] != nil && !isMissing(failed[i]) {
				cancel()
			}
		})
	}
	wg.Wait()
	listing.States = []State{}
	for i, state := range found {
		switch err := failed[i]; {
		case isMissing(err):
		case err != nil && !errors.Is(err, context.Canceled):
			return Listing{}, err
		case err == nil && state.Name != "":
			listing.States = append(listing.States, state)
		}
	}
	return listing, context.Cause(ctx)
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
	snapshot, err := s.Client.Inspect(ctx, name)
	if err != nil {
		return State{}, reached(err)
	}
	return stateOf(name, snapshot), nil
}

// stateOf returns the state of a snapshot.
func stateOf(name string, s protocol.Snapshot) State {
	state := State{
		Name: name, Kind: "concurrency", Capacity: s.Config.Capacity, Effective: s.Effective, InUse: s.InUse, Free: max(0, s.Effective-s.InUse),
		Waiting: len(s.Queue), Draining: s.Config.Draining, TTL: duration(s.Config.TTL), Ramp: s.Config.Ramp, MaxWaiters: maxWaiters(s.Config.MaxWaiters),
		Holders: []Participant{},
	}
	if s.Config.Kind == protocol.Rate {
		state.Kind, state.Window = "rate", duration(s.Config.Window)
	}
	sessions := map[protocol.Session]protocol.SessionInfo{}
	for _, session := range s.Sessions {
		sessions[session.Session] = session
	}
	for _, l := range s.Leases {
		p := participant(sessions[l.Session].Client, l.Weight, l.Details)
		if seen := sessions[l.Session].Renewed; seen > 0 {
			p.Seen = time.UnixMicro(int64(seen))
		}
		p.Lease, p.Since, p.Revoked, p.Pooled = uint64(l.Seq), time.UnixMicro(int64(l.Since)), l.Revoked, l.Pooled
		state.Holders = append(state.Holders, p)
	}
	for _, t := range s.Queue {
		p := participant(sessions[t.Session].Client, t.Weight, t.Details)
		p.Since = time.UnixMicro(int64(t.Since))
		state.Waiters = append(state.Waiters, p)
	}
	return state
}

func duration(m protocol.Micros) Duration { return Duration(time.Duration(m) * time.Microsecond) }

// labels returns the labels that are stored with a lease.
func (w Want) labels() map[string]string {
	labels := map[string]string{"command": w.Command}
	if w.About != "" {
		labels["about"] = w.About
	}
	return labels
}

// participant describes a client that holds or waits.
func participant(c protocol.Client, weight int64, d protocol.Details) Participant {
	return Participant{Weight: weight, About: d.About(), Host: cmp.Or(c.Host, c.Instance), Process: int(c.Process)}
}

// Configure implements [Scope].
func (s fleetScope) Configure(ctx context.Context, name string, c Change) error {
	return reached(s.Client.Configure(ctx, name, func(config *protocol.Config) {
		for _, change := range []struct{ from, to *int64 }{{c.Capacity, &config.Capacity}, {c.Ramp, &config.Ramp}} {
			if change.from != nil {
				*change.to = *change.from
			}
		}
		if c.MaxWaiters != nil {
			config.MaxWaiters = c.MaxWaiters.Stored()
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
	return reached(s.Client.Revoke(ctx, name, fleet.Revocation{Lease: protocol.Seq(r.Lease), AtOnce: r.AtOnce, By: operator(), Why: r.Why}))
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
	if w.Wait > 0 {
		options = append(options, sema.MaxWait(w.Wait))
	}
	gate, err := s.Client.Semaphore(w.Name, cmp.Or(w.Capacity, 1), options...)
	if err != nil {
		return nil, err
	}
	return &fleetSemaphore{scope: s, gate: gate, wait: w.Wait, compared: compared}, nil
}

// reached returns errors that are no reply of the store as [store.Unreachable].
func reached(err error) error {
	switch {
	case err == nil || isMissing(err) || answered(err):
		return err
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return store.Unreached(err)
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
