// Package loadtest implements the command that measures a store: pairs of acquire and release per
// second, and the latency of acquires. The result holds for this machine, this network and this
// store at this moment, with one process. The repository's bench compares stores with each other.
package loadtest

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/dial"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/host"
)

// settings holds the flags.
type settings struct {
	duration time.Duration
	callers  int
	capacity int64
	mode     string
	hold     time.Duration
	output   string
}

// Command returns the command "sema bench".
func Command(named func() (store.URL, error)) *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure a store: acquires per second, and their latency",
		Long: `Measure how many pairs of acquire and release a store serves per second, and the
latency of acquires.

It uses a scratch semaphore, which it removes afterwards, also after Ctrl-C. With
fewer permits than callers (--capacity) the latency includes waiting for a permit.
Exit codes: 0, 1 some acquires failed, 69 the store cannot be reached, 130 after
Ctrl-C.`,
		Example: `  sema bench --store redis://localhost:6379
  sema bench --callers 256 --capacity 8 --hold 5ms --for 30s   # with waiting`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if s.capacity == 0 {
				s.capacity = int64(s.callers)
			}
			u, err := named()
			if err == nil {
				err = s.check(u)
			}
			if err != nil {
				return err
			}
			return bench(c, u, s)
		},
	}
	f := c.Flags()
	flags.Duration(f, &s.duration, "for", 10*time.Second, "measure for `DURATION`")
	f.IntVar(&s.callers, "callers", 64, "`N` goroutines acquire at the same time")
	f.Int64Var(&s.capacity, "capacity", 0, "the semaphore has `N` permits (default: as many as callers, so that none waits)")
	f.StringVar(&s.mode, "mode", "exact", "`MODE`: exact (each permit is a lease in the store), or pooled (this process leases blocks of permits)")
	flags.Duration(f, &s.hold, "hold", 0, "hold each permit for `DURATION` (default: release at once)")
	f.StringVarP(&s.output, "output", "o", "text", "output `FORMAT`: text or json")
	return c
}

func (s settings) check(u store.URL) error {
	switch {
	case s.output != "text" && s.output != "json":
		return exit.Misuse("-o %s: want text or json", s.output)
	case s.mode != "exact" && s.mode != "pooled":
		return exit.Misuse("--mode %s: want exact or pooled", s.mode)
	case s.mode == "pooled" && u.IsHost():
		return exit.Misuse("--mode pooled: semaphores of this machine have no pools").With("name another store with --store, or omit --mode")
	case s.duration <= 0 || s.hold < 0:
		return exit.Misuse("--for %v --hold %v: want more than 0, and 0 or more", s.duration, s.hold)
	case s.callers < 1 || s.capacity < 1:
		return exit.Misuse("--callers %d --capacity %d: want 1 or more", s.callers, s.capacity)
	case s.capacity > host.MaxCapacity && u.IsHost():
		return exit.Misuse("--capacity %d: a semaphore of this machine has %d at most", s.capacity, host.MaxCapacity)
	}
	return nil
}

// bench measures a store, and removes its semaphore in any case.
func bench(c *cobra.Command, u store.URL, s settings) (err error) {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	t, err := open(ctx, u, s)
	if err != nil {
		return err
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the store has logged its warnings when it was opened
	p := newProgress(c.ErrOrStderr(), s)
	r := measure(ctx, t.gate, s, p)
	p.end()
	removed := t.remove()
	r.Store, r.Interrupted = u.String(), ctx.Err() != nil
	if err := r.print(c.OutOrStdout(), s.output); err != nil {
		return err
	}
	switch {
	case removed != nil:
		return exit.Errorf(exit.Failed, "semaphore %q was not removed: %w", t.name, removed).With("remove it with 'sema rm %s'", t.name)
	case r.Interrupted:
		return &exit.Error{Code: exit.Interrupted}
	case len(r.Errors) > 0:
		return &exit.Error{Code: exit.Failed, Err: errors.New("some acquires failed"), Printed: true}
	}
	return nil
}

// A target is a semaphore that no other program uses.
type target struct {
	name   string
	gate   sema.Gate
	remove func() error
}

// Timeouts of the first round trip and of the first permit: a Redis that was just started grants
// none for a TTL.
const (
	replyTimeout = 5 * time.Second
	grantTimeout = 20 * time.Second
)

// open creates the semaphore by acquiring from it once.
func open(ctx context.Context, u store.URL, s settings) (t target, err error) {
	if u.IsHost() {
		t, err = openHost(u, s)
	} else {
		t, err = openFleet(ctx, u, s)
	}
	if err != nil {
		return t, err
	}
	waiting, cancel := context.WithTimeout(ctx, grantTimeout)
	defer cancel()
	permit, err := t.gate.Acquire(waiting, 1)
	if err != nil {
		err = errors.Join(err, t.remove())
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return t, exit.Errorf(exit.Interrupted, "interrupted before anything was measured")
	case err != nil:
		return t, exit.Errorf(exit.Unavailable, "the first permit was not granted: %w", err).With("'sema doctor' examines the store")
	}
	permit.Release()
	return t, nil
}

func openHost(u store.URL, s settings) (target, error) {
	opts, err := u.HostOptions()
	if err != nil {
		return target{}, err
	}
	name := store.ScratchName("bench")
	sem, err := host.Open(name, s.capacity, opts...)
	if err != nil {
		return target{}, store.Unreached(err)
	}
	return target{name, sem, func() error { return errors.Join(sem.Close(), host.Remove(name, opts...)) }}, nil
}

func openFleet(ctx context.Context, u store.URL, s settings) (target, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	opened, err := dial.Open(ctx, u, dial.Creating)
	if err != nil {
		return target{}, err
	}
	client := fleet.New(opened)
	if _, err := client.Ping(ctx); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		store.CloseClient(client)
		return target{}, store.Unreached(err)
	}
	mode := fleet.ModeExact
	if s.mode == "pooled" {
		mode = fleet.ModePooled
	}
	name := store.ScratchName("bench")
	sem, err := client.Semaphore(name, s.capacity, mode)
	if err != nil {
		store.CloseClient(client)
		return target{}, exit.Misuse("%v", err)
	}
	return target{name, sem, func() error { return errors.Join(store.CloseClient(client), removeFleet(u, name)) }}, nil
}

// removeFleet deletes the semaphore with another client, after the first one was closed: a request
// of the first client that is still in flight might create the semaphore again.
func removeFleet(u store.URL, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	opened, err := dial.Open(ctx, u, dial.Creating)
	if err != nil {
		return err
	}
	client := fleet.New(opened)
	err = client.Delete(ctx, name)
	if errors.Is(err, fs.ErrNotExist) { // a store in memory has ended with its client
		err = nil
	}
	return errors.Join(err, store.CloseClient(client))
}
