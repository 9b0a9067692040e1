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

// Info returns a semaphore as the store has it: configuration, holders, waiters. It
// fails with [io/fs.ErrNotExist] if there is none.
func (c *Client) Info(ctx context.Context, name string) (Info, error) {
	if err := checkContext(ctx, "info", name); err != nil {
		return Info{}, err
	}
	snapshot, err := c.store.Inspect(ctx, name)
	if err != nil {
		return Info{}, about("info", name, err)
	}
	return infoOf(name, snapshot), nil
}

// checkContext fails if there is no context.
func checkContext(ctx context.Context, op, name string) error {
	if ctx == nil {
		return &sema.Error{Op: op, Name: name, Err: sema.ErrInvalid, Detail: "nil context"}
	}
	return nil
}

// about names the semaphore in the error of a store that has none of that name.
func about(op, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &sema.Error{Op: op, Name: name, Err: missing{}}
	}
	return err
}

// missing is [io/fs.ErrNotExist] of a semaphore.
type missing struct{}

func (missing) Error() string { return "no such semaphore" }
func (missing) Unwrap() error { return fs.ErrNotExist }

// Hint returns the advice of [sema.Hint].
func (missing) Hint() string { return "check the name; an acquire with a capacity creates it" }

// List returns the names of the semaphores that begin with a prefix, in order.
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

// A Summary describes a semaphore without its holders and waiters. An expired holder
// counts until the semaphore is used.
type Summary struct {
	Name      string
	Config    Config
	Effective int64 // capacity at the moment, below Config.Capacity while a ramp raises it
	InUse     int64
	Holders   int
	Waiters   int
}

// Summaries yields the semaphores whose names begin with a prefix and follow after, in
// order. It reads a thousand at a time. After an error it ends.
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
// page: the limit of the query is that of a page. After an error it ends.
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

// Watch yields a semaphore, and again whenever it has changed, until ctx ends. It polls
// about every interval, with some jitter. An error is yielded, and the next poll is the
// next try; after [io/fs.ErrNotExist] it ends.
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

// jittered returns about d, so that many clients do not poll at once.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// changed compares all but the heartbeats.
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

// configureTries bounds how often a change is tried again because of others.
const configureTries = 10

// Configure changes the configuration of a semaphore for all its clients. The function
// is called with the present one, and again if another change came between. Rate and
// TTL are fixed.
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
			return about(op, name, inspectErr)
		}
		stored := snapshot.Config
		config := configOf(stored)
		change(&config)
		config.Version = stored.Version
		config.applyTo(&stored)
		err = c.store.Administer(ctx, name, Command{Configure: &stored})
		if !errors.Is(err, protocol.ErrConflict) {
			return about(op, name, err)
		}
	}
	return &sema.Error{Op: op, Name: name, Err: err, Detail: fmt.Sprintf("after %d tries", configureTries)}
}

// Resize sets the capacity of a semaphore for all its clients. 0 pauses it.
func (c *Client) Resize(ctx context.Context, name string, capacity int64) error {
	if capacity < 0 {
		return &sema.Error{Op: "resize", Name: name, Err: sema.ErrInvalid, Detail: fmt.Sprintf("capacity %d", capacity)}
	}
	return c.configure(ctx, "resize", name, func(config *Config) { config.Capacity = capacity })
}

// Drain rejects all waiters and new acquires, on all machines, with ErrDraining, and
// waits until nothing is held. If ctx ends first, the semaphore goes on draining, and
// the error says how much is held. Renewals go on.
func (c *Client) Drain(ctx context.Context, name string) error {
	if err := c.configure(ctx, "drain", name, func(config *Config) { config.Draining = true }); err != nil {
		return err
	}
	for {
		snapshot, err := c.store.Inspect(ctx, name)
		switch {
		case err != nil && ctx.Err() != nil:
			return &sema.Error{Op: "drain", Name: name, Err: context.Cause(ctx), Detail: "the semaphore goes on draining"}
		case err != nil:
			return about("drain", name, err)
		case snapshot.InUse == 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return &sema.Error{Op: "drain", Name: name, Err: context.Cause(ctx), Capacity: snapshot.Config.Capacity, InUse: snapshot.InUse,
				Detail: fmt.Sprintf("%d permits are still held; the semaphore goes on draining", snapshot.InUse), Advice: "wait again, or Resume"}
		case <-time.After(jittered(drainPoll)):
		}
	}
}

// drainPoll is how often Drain polls for what is held.
const drainPoll = 200 * time.Millisecond

// Resume ends what Drain began.
func (c *Client) Resume(ctx context.Context, name string) error {
	return c.configure(ctx, "resume", name, func(config *Config) { config.Draining = false })
}

// Revoke ends a lease of any client. Its holder is notified (Lost), and the permits
// are free when the holder has confirmed that or has expired. With AtOnce they are
// free at once, which breaks the bound while the holder still works.
func (c *Client) Revoke(ctx context.Context, name string, r Revocation) error {
	if err := checkContext(ctx, "revoke", name); err != nil {
		return err
	}
	if err := r.Check(); err != nil {
		return about("revoke", name, err)
	}
	return about("revoke", name, c.store.Administer(ctx, name, Command{Revoke: &r}))
}

// Delete removes a semaphore. Its holders lose their permits, and notice it with their
// next heartbeat.
func (c *Client) Delete(ctx context.Context, name string) error {
	if err := checkContext(ctx, "delete", name); err != nil {
		return err
	}
	return about("delete", name, c.store.Administer(ctx, name, Command{Delete: true}))
}
