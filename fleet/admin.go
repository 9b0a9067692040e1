package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// Info returns the configuration, holders and waiters of a semaphore, read from the
// store. It fails with [io/fs.ErrNotExist] if the semaphore does not exist.
func (c *Client) Info(ctx context.Context, name string) (Info, error) {
	if err := checkContext(ctx, "info", name); err != nil {
		return Info{}, err
	}
	snapshot, err := c.store.Inspect(ctx, name)
	if err != nil {
		return Info{}, withName("info", name, err)
	}
	return infoOf(name, snapshot), nil
}

// checkContext fails with ErrInvalid if ctx is nil.
func checkContext(ctx context.Context, op, name string) error {
	if ctx == nil {
		return &sema.Error{Op: op, Name: name, Err: sema.ErrInvalid, Detail: "nil context"}
	}
	return nil
}

// withName adds the name of the semaphore to an error that wraps [io/fs.ErrNotExist].
func withName(op, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &sema.Error{Op: op, Name: name, Err: missing{}}
	}
	return err
}

// missing is the [io/fs.ErrNotExist] of a semaphore, with a hint.
type missing struct{}

func (missing) Error() string { return "no such semaphore" }
func (missing) Unwrap() error { return fs.ErrNotExist }

// Hint returns the advice that [sema.Hint] reports.
func (missing) Hint() string { return "check the name; an acquire with a capacity creates it" }

// List returns the sorted names of the semaphores that begin with prefix.
func (c *Client) List(ctx context.Context, prefix string) (names []string, err error) {
	if err := checkContext(ctx, "list", ""); err != nil {
		return nil, err
	}
	for s, err := range Summaries(ctx, c.store, protocol.ListQuery{Prefix: prefix}) {
		if err != nil {
			return nil, err
		}
		names = append(names, s.Name)
	}
	return names, nil
}

// A Summary describes a semaphore without listing its holders and waiters. An expired
// holder is counted until the semaphore is used again.
type Summary struct {
	Name      string
	Config    Config
	Effective int64 // current capacity; below Config.Capacity while a ramp raises it
	InUse     int64 // permits
	Holders   int
	Waiters   int
}

// Summaries yields the semaphores whose names begin with prefix, in order, starting behind
// the name after. It reads pages of a thousand. It stops after an error.
func (c *Client) Summaries(ctx context.Context, prefix, after string) iter.Seq2[Summary, error] {
	return func(yield func(Summary, error) bool) {
		if err := checkContext(ctx, "list", ""); err != nil {
			yield(Summary{}, err)
			return
		}
		for s, err := range Summaries(ctx, c.store, protocol.ListQuery{Prefix: prefix, After: after}) {
			one := Summary{s.Name, configOf(s.Config), s.Effective, s.InUse, int(s.Leases), int(s.Waiting)}
			if !yield(one, err) {
				return
			}
		}
	}
}

// Summaries yields the semaphores of a store that a query selects, in order, page by
// page. The limit of the query is the page size. It stops after an error.
func Summaries(ctx context.Context, store Store, q protocol.ListQuery) iter.Seq2[protocol.Summary, error] {
	return func(yield func(protocol.Summary, error) bool) {
		for {
			page, err := store.List(ctx, q)
			if err != nil {
				yield(protocol.Summary{}, err)
				return
			}
			for _, s := range page {
				if !yield(s, nil) {
					return
				}
				q.After = s.Name
			}
			if len(page) < q.Most() {
				return
			}
		}
	}
}

// Watch yields the state of a semaphore, and again after each change, until ctx ends. It
// polls about every interval (at least 10ms), with jitter. It yields errors and retries
// with the next poll; it stops after [io/fs.ErrNotExist].
func (c *Client) Watch(ctx context.Context, name string, interval time.Duration) iter.Seq2[Info, error] {
	interval = max(interval, 10*time.Millisecond)
	return func(yield func(Info, error) bool) {
		var last *Info
		for {
			now, err := c.Info(ctx, name)
			if ctx != nil && ctx.Err() != nil {
				return
			}
			if err != nil && !yield(now, err) || errors.Is(err, fs.ErrNotExist) || ctx == nil {
				return
			}
			if err == nil && (last == nil || changed(*last, now)) {
				last = &now
				if !yield(now, nil) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(jittered(interval)):
			}
		}
	}
}

// jittered returns d ± 10 %, so that clients do not poll in step.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// changed reports whether a and b differ in more than the times of renewals.
func changed(a, b Info) bool { return !reflect.DeepEqual(withoutRenewals(a), withoutRenewals(b)) }

func withoutRenewals(info Info) Info {
	info.Holders, info.Waiters = slices.Clone(info.Holders), slices.Clone(info.Waiters)
	for i := range info.Holders {
		info.Holders[i].Renewed = time.Time{}
	}
	for i := range info.Waiters {
		info.Waiters[i].Renewed = time.Time{}
	}
	return info
}

// configureTries bounds the attempts of a change that conflicts with concurrent changes
// (optimistic concurrency).
const configureTries = 10

// Configure changes the configuration of a semaphore for all its clients. It calls change
// with the stored configuration, and again if a concurrent change conflicts. Rate and TTL
// are fixed.
func (c *Client) Configure(ctx context.Context, name string, change func(*Config)) error {
	return c.configure(ctx, "configure", name, change)
}

func (c *Client) configure(ctx context.Context, op, name string, change func(*Config)) error {
	if err := checkContext(ctx, op, name); err != nil {
		return err
	}
	var err error
	for range configureTries {
		snapshot, inspectErr := c.store.Inspect(ctx, name)
		if inspectErr != nil {
			return withName(op, name, inspectErr)
		}
		stored := snapshot.Config
		config := configOf(stored)
		change(&config)
		config.Version = stored.Version
		config.applyTo(&stored)
		err = c.store.Administer(ctx, name, Command{Configure: &stored})
		if !errors.Is(err, protocol.ErrConflict) {
			return withName(op, name, err)
		}
	}
	return &sema.Error{Op: op, Name: name, Err: err, Detail: fmt.Sprintf("after %d tries", configureTries)}
}

// Resize sets the capacity of a semaphore for all its clients. 0 pauses it.
func (c *Client) Resize(ctx context.Context, name string, capacity int64) error {
	if capacity < 0 {
		return &sema.Error{Op: "resize", Name: name, Err: sema.ErrInvalid, Detail: fmt.Sprintf("capacity %d: want 0 to %d", capacity, int64(protocol.MaxCapacity))}
	}
	return c.configure(ctx, "resize", name, func(config *Config) { config.Capacity = capacity })
}

// Drain rejects all waiters and new acquires, on all machines, with ErrDraining, and
// waits until no permit is held. Renewals continue. If ctx ends first, the semaphore
// keeps draining and the error contains the number of held permits.
func (c *Client) Drain(ctx context.Context, name string) error {
	if err := c.configure(ctx, "drain", name, func(config *Config) { config.Draining = true }); err != nil {
		return err
	}
	for {
		snapshot, err := c.store.Inspect(ctx, name)
		switch {
		case err != nil && ctx.Err() != nil:
			return &sema.Error{Op: "drain", Name: name, Err: context.Cause(ctx), Detail: "the semaphore keeps draining"}
		case err != nil:
			return withName("drain", name, err)
		case snapshot.InUse == 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return &sema.Error{Op: "drain", Name: name, Err: context.Cause(ctx), Capacity: snapshot.Config.Capacity, InUse: snapshot.InUse,
				Detail: fmt.Sprintf("%d permits are still held; the semaphore keeps draining", snapshot.InUse), Advice: "wait again, or Resume"}
		case <-time.After(jittered(drainPoll)):
		}
	}
}

// drainPoll is the interval at which Drain polls the number of held permits.
const drainPoll = 200 * time.Millisecond

// Resume ends a drain.
func (c *Client) Resume(ctx context.Context, name string) error {
	return c.configure(ctx, "resume", name, func(config *Config) { config.Draining = false })
}

// Revoke ends a lease of any client. The holder is notified (Lost). The permits become
// free when the holder has confirmed the revocation or has expired. With AtOnce they are
// free immediately, which breaks the bound while the holder still works.
func (c *Client) Revoke(ctx context.Context, name string, r Revocation) error {
	if err := checkContext(ctx, "revoke", name); err != nil {
		return err
	}
	if err := r.Check(); err != nil {
		return withName("revoke", name, err)
	}
	err := c.store.Administer(ctx, name, Command{Revoke: &r})
	if errors.Is(err, fs.ErrNotExist) { // the semaphore or the lease
		_, missed := c.store.Inspect(ctx, name)
		switch {
		case missed == nil:
			return &sema.Error{Op: "revoke", Name: name, Err: missingLease(r.Lease)}
		case !errors.Is(missed, fs.ErrNotExist):
			return err
		}
	}
	return withName("revoke", name, err)
}

// missingLease is the [io/fs.ErrNotExist] of a lease, with a hint.
type missingLease LeaseID

func (l missingLease) Error() string { return fmt.Sprintf("no lease %d", uint64(l)) }
func (missingLease) Unwrap() error   { return fs.ErrNotExist }

// Hint returns the advice that [sema.Hint] reports.
func (missingLease) Hint() string { return "it has ended, or check the number: Info lists the leases" }

// Delete removes a semaphore. Its holders lose their permits, and are notified with the
// reply to their next heartbeat.
func (c *Client) Delete(ctx context.Context, name string) error {
	if err := checkContext(ctx, "delete", name); err != nil {
		return err
	}
	return withName("delete", name, c.store.Administer(ctx, name, Command{Delete: true}))
}
