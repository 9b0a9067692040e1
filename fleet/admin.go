package fleet

import (
	"cmp"
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

// Inspect is a semaphore as it is at the engine: configuration, holders, line.
// It fails with [io/fs.ErrNotExist] if there is none.
func (c *Client) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	snapshot, err := c.store.Inspect(ctx, name)
	return snapshot, about("inspect", name, err)
}

// about says of what an error is that tells there is no such semaphore.
func about(op, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &sema.Error{Op: op, Name: name, Err: missing{}}
	}
	return err
}

// missing is [io/fs.ErrNotExist] of a semaphore.
type missing struct{}

func (missing) Error() string { return "no such semaphore; an acquire with a capacity creates it" }
func (missing) Unwrap() error { return fs.ErrNotExist }

// List returns the names of the semaphores that begin with a prefix, in order.
func (c *Client) List(ctx context.Context, prefix string) (names []string, err error) {
	for s, err := range Summaries(ctx, c.store, prefix) {
		if err != nil {
			return nil, err
		}
		names = append(names, s.Name)
	}
	return names, nil
}

// Summaries yields the semaphores of a store whose names begin with a prefix, in
// order, page by page. After an error it ends.
func Summaries(ctx context.Context, store Store, prefix string) iter.Seq2[protocol.Summary, error] {
	return func(yield func(protocol.Summary, error) bool) {
		q := protocol.ListQuery{Prefix: prefix}
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

// Watch yields a semaphore as it is, and again whenever it has changed, until ctx
// ends. It looks about as often as told, with some jitter. An error is yielded,
// and the next look is the next try; after [io/fs.ErrNotExist] it ends.
func (c *Client) Watch(ctx context.Context, name string, every time.Duration) iter.Seq2[protocol.Snapshot, error] {
	every = max(every, 10*time.Millisecond)
	return func(yield func(protocol.Snapshot, error) bool) {
		var last *protocol.Snapshot
		for {
			now, err := c.Inspect(ctx, name)
			if ctx.Err() != nil {
				return
			}
			if err != nil && !yield(now, err) || errors.Is(err, fs.ErrNotExist) {
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
			case <-time.After(jittered(every)):
			}
		}
	}
}

// jittered is about as long, so that many who look do not do so at once.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// changed ignores signs of life.
func changed(a, b protocol.Snapshot) bool {
	a.Sessions, b.Sessions = unseen(a.Sessions), unseen(b.Sessions)
	return !reflect.DeepEqual(a, b)
}

func unseen(sessions []protocol.SessionInfo) []protocol.SessionInfo {
	sessions = slices.Clone(sessions)
	for i := range sessions {
		sessions[i].Renewed = 0
	}
	slices.SortFunc(sessions, func(a, b protocol.SessionInfo) int { return cmp.Compare(a.Session, b.Session) })
	return sessions
}

// configureTries bounds how often a change begins again because somebody else
// changed something meanwhile.
const configureTries = 10

// Configure changes the configuration of a semaphore for all who use it. The
// function is called with the present one, and again if somebody else was
// quicker. Kind, TTL and window stay what they are.
func (c *Client) Configure(ctx context.Context, name string, change func(*protocol.Config)) error {
	var err error
	for range configureTries {
		snapshot, inspectErr := c.store.Inspect(ctx, name)
		if inspectErr != nil {
			return about("configure", name, inspectErr)
		}
		config := snapshot.Config
		change(&config)
		config.Version = snapshot.Config.Version
		err = c.store.Administer(ctx, name, Command{Configure: &config})
		if !errors.Is(err, protocol.ErrConflict) {
			return about("configure", name, err)
		}
	}
	return &sema.Error{Op: "configure", Name: name, Err: err, Detail: fmt.Sprintf("after %d tries", configureTries)}
}

// Drain refuses all who wait and come, on all machines, with ErrDraining, and
// waits until nothing is held. When ctx ends first, it stays draining, and the
// error says how much is held. Renewals go on.
func (c *Client) Drain(ctx context.Context, name string) error {
	if err := c.Configure(ctx, name, func(config *protocol.Config) { config.Draining = true }); err != nil {
		return err
	}
	for {
		snapshot, err := c.Inspect(ctx, name)
		if err != nil {
			return err
		}
		if snapshot.InUse == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return &sema.Error{Op: "drain", Name: name, Err: context.Cause(ctx), Capacity: snapshot.Config.Capacity, InUse: snapshot.InUse,
				Detail: fmt.Sprintf("%d permits are still held; it stays draining, Resume opens it again", snapshot.InUse)}
		case <-time.After(jittered(drainLook)):
		}
	}
}

// drainLook is how often Drain looks whether all is back.
const drainLook = 200 * time.Millisecond

// Resume ends what Drain began.
func (c *Client) Resume(ctx context.Context, name string) error {
	return c.Configure(ctx, name, func(config *protocol.Config) { config.Draining = false })
}

// Revoke ends a lease of any client. Its holder is notified (Lost), and the permits
// are free when the holder has confirmed that or has expired. With AtOnce they are
// free at once, which breaks the bound while the holder still works.
func (c *Client) Revoke(ctx context.Context, name string, r Revocation) error {
	if err := r.Check(); err != nil {
		return about("revoke", name, err)
	}
	return about("revoke", name, c.store.Administer(ctx, name, Command{Revoke: &r}))
}

// Delete removes a semaphore. Its holders lose their permits, though they hear of
// it only with their next sign of life.
func (c *Client) Delete(ctx context.Context, name string) error {
	return about("delete", name, c.store.Administer(ctx, name, Command{Delete: true}))
}
