// Package loadtest is the command that measures an engine: how many pairs of
// acquire and release it serves in a second, and how long an acquire takes. What
// it says is of this machine, this network and this engine at this moment, with
// one process; to compare engines with each other see the repository's bench.
package loadtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/engine"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/host"
)

// settings are the flags.
type settings struct {
	duration time.Duration
	callers  int
	capacity int64
	mode     string
	hold     time.Duration
	output   string
}

// Command is "sema bench".
func Command(store func() string) *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure a store: acquires per second, and their latency",
		Long: `Measure how many pairs of acquire and release a store serves in a second, and how
long an acquire takes.

It uses a semaphore of its own, which it removes afterwards, also after Ctrl-C. With
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
			if err := s.check(store()); err != nil {
				return err
			}
			return bench(c, store(), s)
		},
	}
	f := c.Flags()
	flags.Duration(f, &s.duration, "for", 10*time.Second, "measure for `DURATION`")
	f.IntVar(&s.callers, "callers", 64, "`N` goroutines acquire at the same time")
	f.Int64Var(&s.capacity, "capacity", 0, "the semaphore has `N` permits (default: as many as callers, so that none waits)")
	f.StringVar(&s.mode, "mode", "exact", "`MODE`: exact (each permit is a lease in the store), or pooled (this process borrows blocks of permits)")
	flags.Duration(f, &s.hold, "hold", 0, "hold each permit for `DURATION` (default: release at once)")
	f.StringVarP(&s.output, "output", "o", "text", "output `FORMAT`: text or json")
	return c
}

func (s settings) check(store string) error {
	switch {
	case s.output != "text" && s.output != "json":
		return engine.Misused("-o %s: want text or json", s.output)
	case s.mode != "exact" && s.mode != "pooled":
		return engine.Misused("--mode %s: want exact or pooled", s.mode)
	case s.mode == "pooled" && engine.IsHost(store):
		return engine.Misused("--mode pooled: semaphores of this machine have no pools; name an engine with --store, or leave it out")
	case s.duration <= 0 || s.hold < 0:
		return engine.Misused("--for %v --hold %v: want a positive duration, and none below 0", s.duration, s.hold)
	case s.callers < 1 || s.capacity < 1:
		return engine.Misused("--callers %d --capacity %d: want 1 or more", s.callers, s.capacity)
	case s.capacity > host.MaxCapacity && engine.IsHost(store):
		return engine.Misused("--capacity %d: a semaphore of this machine has %d at most", s.capacity, host.MaxCapacity)
	}
	return nil
}

// bench measures, and cleans up after itself whatever happens.
func bench(c *cobra.Command, store string, s settings) (err error) {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // who cannot wait for the end presses ^C again
	t, err := open(ctx, store, s)
	if err != nil {
		return err
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what stores warn of was said when it was opened
	p := newProgress(c.ErrOrStderr(), s)
	r := measure(ctx, t.gate, s, p)
	p.end()
	removed := t.remove()
	r.Store, r.Interrupted = engine.Shown(store), ctx.Err() != nil
	if err := r.print(c.OutOrStdout(), s.output); err != nil {
		return err
	}
	switch {
	case removed != nil:
		return &engine.Error{Code: engine.Problems, Err: fmt.Errorf("semaphore %q is left behind: %w; remove it with sema rm", t.name, removed)}
	case r.Interrupted:
		return &engine.Error{Code: engine.Interrupted, Err: errors.New("interrupted"), Said: true}
	case len(r.Errors) > 0:
		return &engine.Error{Code: engine.Problems, Err: errors.New("some acquires failed"), Said: true}
	}
	return nil
}

// A target is a semaphore that nobody else uses.
type target struct {
	name   string
	gate   sema.Gate
	remove func() error
}

// An engine has so long to answer at all, and to grant the first permit: a Redis
// that was just started waits for a TTL before it does.
const (
	answerPatience = 5 * time.Second
	grantPatience  = 20 * time.Second
)

// open makes the semaphore, by acquiring from it once.
func open(ctx context.Context, store string, s settings) (t target, err error) {
	if engine.IsHost(store) {
		t, err = openHost(store, s)
	} else {
		t, err = openFleet(ctx, store, s)
	}
	if err != nil {
		return t, err
	}
	patient, cancel := context.WithTimeout(ctx, grantPatience)
	defer cancel()
	permit, err := t.gate.Acquire(patient, 1)
	if err != nil {
		err = errors.Join(err, t.remove())
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return t, &engine.Error{Code: engine.Interrupted, Err: errors.New("interrupted before anything was measured")}
	case err != nil:
		return t, engine.Unreached(fmt.Errorf("the first permit was not granted: %w", err))
	}
	permit.Release()
	return t, nil
}

func openHost(store string, s settings) (target, error) {
	opts, err := engine.HostOptions(store)
	if err != nil {
		return target{}, err
	}
	name := engine.ScratchName("bench")
	sem, err := host.Open(name, s.capacity, opts...)
	if err != nil {
		return target{}, engine.Unreached(err)
	}
	return target{name, sem, func() error { return errors.Join(sem.Close(), host.Remove(name, opts...)) }}, nil
}

func openFleet(ctx context.Context, store string, s settings) (target, error) {
	patient, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	client, err := fleet.Open(patient, store)
	if err != nil {
		return target{}, engine.Unreached(err)
	}
	if _, err := client.Ping(patient); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		engine.Close(client)
		return target{}, engine.Unreached(err)
	}
	mode := fleet.Exact
	if s.mode == "pooled" {
		mode = fleet.Pooled
	}
	name := engine.ScratchName("bench")
	sem, err := client.Semaphore(name, fleet.Options{Capacity: s.capacity, Mode: mode})
	if err != nil {
		engine.Close(client)
		return target{}, engine.Misused("%v", err)
	}
	return target{name, sem, func() error { return errors.Join(engine.Close(client), removeFleet(store, name)) }}, nil
}

// removeFleet is done by another client, when the first has said all it has to
// say: one that still has something to say might make the semaphore again.
func removeFleet(store, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerPatience)
	defer cancel()
	client, err := fleet.Open(ctx, store)
	if err != nil {
		return err
	}
	err = client.Delete(ctx, name)
	if errors.Is(err, fs.ErrNotExist) { // what is in memory is gone with its client
		err = nil
	}
	return errors.Join(err, engine.Close(client))
}
