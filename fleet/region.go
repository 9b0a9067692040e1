package fleet

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Region is a store for the clients of one region. The capacity of its semaphores is
// leased from the semaphores of the same names at a global store, in blocks that grow
// with demand and return when other regions wait. So an acquire costs a round trip to
// the region's local store, and the bound is that of the global semaphore, over all
// regions.
//
// Permits of regional clients are trusted no longer than the region's block, by the
// clock of this process: a region that cannot reach the global store stops to reply to
// its clients when its block expires, and they have lost their permits by then.
//
// While other regions wait, a region returns half of what it does not use, again and
// again; after a quantum also what it has beyond its even share, as that is released.
// So a region that has less than its share waits for a round trip to the global store, a
// quantum, and the release of permits that are held now, at most.
//
// There is one Region for a local store, which is used through it only: run it in a
// server that the region's clients reach. Configure, through a region, sets MaxWaiters
// and Draining for the region, capacity and ramp for all; a drain of the global
// semaphore drains every region. A semaphore with a rate has one in each region; its
// share is leased for three windows at a time, so that what a region has spent stays
// spent after it is gone, and a region that crashed keeps its share for as long.
// Revoking a region's block at the global store frees it while regional permits may be
// held for up to two thirds of a TTL.
//
// Several regions may lease through one client, and the program may use that for
// itself. Close it after the regions.
//
// Fences are those of the regional semaphore: they tell the leases of one region apart,
// and must not be shown to a [Guard] that sees those of another.
type Region struct {
	local   Store
	global  *Client
	quantum protocol.Micros
	workers workers

	mu      sync.Mutex
	keepers map[string]*keeper
}

// NewRegion returns the store of a region. Closing it closes local. What it has beyond
// its share stays with it for a quantum when other regions wait; 0: 50ms.
func NewRegion(local Store, global *Client, quantum time.Duration) *Region {
	if quantum <= 0 {
		quantum = defaultQuantum
	}
	r := &Region{local: local, global: global, quantum: protocol.Micros(quantum.Microseconds()), keepers: map[string]*keeper{}}
	r.workers.begin()
	return r
}

// Open implements [Store].
func (r *Region) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	if err := checkContext(ctx, "open", name); err != nil {
		return 0, protocol.Config{}, err
	}
	k, err := r.keeper(ctx, name, c)
	if err != nil {
		return 0, protocol.Config{}, err
	}
	if err := k.learn(ctx); err != nil {
		return 0, protocol.Config{}, err
	}
	session, stored, err := r.local.Open(ctx, name, shareOf(c), by)
	return session, k.shown(stored), err
}

// Apply implements [Store].
func (r *Region) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if err := checkContext(ctx, "apply", name); err != nil {
		return protocol.Reply{}, err
	}
	k, err := r.present(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return protocol.Reply{Status: protocol.Unknown}, nil
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	reply, err := r.local.Apply(ctx, name, b)
	if err != nil {
		return reply, err
	}
	k.notice(reply)
	valid, ok := k.covers(reply.InUse)
	if !ok {
		return protocol.Reply{}, &sema.Error{Op: "apply", Name: name, Err: sema.ErrUnavailable, Detail: "the region has no valid lease for what is in use", Advice: "check that the region can reach the global store"}
	}
	reply.Valid = valid
	reply.Config = k.shown(reply.Config)
	return reply, nil
}

// Listen implements [Store].
func (r *Region) Listen(ctx context.Context, instance string, hint func(name string)) error {
	if err := checkContext(ctx, "listen", ""); err != nil {
		return err
	}
	return r.local.Listen(ctx, instance, hint)
}

// Inspect implements [Store]. It returns what the region's clients hold; Effective is the
// region's share of the capacity.
func (r *Region) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	if err := checkContext(ctx, "inspect", name); err != nil {
		return protocol.Snapshot{}, err
	}
	k, err := r.present(ctx, name)
	if err != nil {
		return protocol.Snapshot{}, err
	}
	snapshot, err := r.local.Inspect(ctx, name)
	snapshot.Config = k.shown(snapshot.Config)
	return snapshot, err
}

// List implements [Store]. Capacities are what the region has of them.
func (r *Region) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	if err := checkContext(ctx, "list", ""); err != nil {
		return nil, err
	}
	return r.local.List(ctx, q)
}

// Administer implements [Store].
func (r *Region) Administer(ctx context.Context, name string, c Command) error {
	if err := checkContext(ctx, "administer", name); err != nil {
		return err
	}
	k, err := r.present(ctx, name)
	switch {
	case err != nil:
		return err
	case c.Configure != nil:
		return k.configure(ctx, *c.Configure)
	case !c.Delete:
		return r.local.Administer(ctx, name, c)
	}
	k.stop()
	err = r.local.Administer(ctx, name, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keepers[name] == k {
		delete(r.keepers, name) // whoever comes now makes another one
	}
	return err
}

// Close implements [Store]. It returns what is not in use of the blocks; the rest when no
// client of the region relies on it any more, or a TTL after the global client is
// closed.
func (r *Region) Close() error {
	r.workers.end()
	var stopping sync.WaitGroup
	r.mu.Lock()
	for _, k := range r.keepers {
		stopping.Go(k.stop)
	}
	r.mu.Unlock()
	stopping.Wait()
	return r.local.Close()
}

// ShareInfo is what a region has of a semaphore.
type ShareInfo struct {
	Held     int64         // permits leased from the global semaphore
	InUse    int64         // by the region's clients, as last known
	Wanted   int64         // by the waiters among them, at least
	Left     time.Duration // for how long it is held at least, if the global store does not reply any more
	Recalled bool          // other regions wait
}

// Share returns what the region has of a semaphore; ok is false if its clients have not
// used the semaphore since the region was created.
func (r *Region) Share(name string) (info ShareInfo, ok bool) {
	r.mu.Lock()
	k := r.keepers[name]
	r.mu.Unlock()
	if k == nil || !k.begun.Load() {
		return ShareInfo{}, false
	}
	since, _ := k.ears.read()
	now := r.global.clock()
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.share
	s.look(now)
	return ShareInfo{s.held, s.inUse, s.wanted, micros(max(0, s.trusted-now)), since != 0}, true
}

// present is the keeper of a semaphore that is there, though perhaps not opened
// since this process began.
func (r *Region) present(ctx context.Context, name string) (*keeper, error) {
	r.mu.Lock()
	k := r.keepers[name]
	r.mu.Unlock()
	if k != nil && k.begun.Load() {
		return k, nil
	}
	snapshot, err := r.local.Inspect(ctx, name)
	if err != nil {
		return nil, err
	}
	c := snapshot.Config
	c.Capacity = c.Whole
	return r.keeper(ctx, name, c)
}

// keeper is the one of a semaphore, which is made if it is not there.
func (r *Region) keeper(ctx context.Context, name string, c protocol.Config) (*keeper, error) {
	r.mu.Lock()
	k := r.keepers[name]
	if k == nil {
		k = newKeeper(r, name)
		r.keepers[name] = k
	}
	r.mu.Unlock()
	return k, k.begin(ctx, c)
}

// shareOf is a configuration for the regional semaphore, before it has anything.
func shareOf(c protocol.Config) protocol.Config {
	c.Whole, c.Capacity, c.Ramp = c.Capacity, 0, 0
	return c
}

var (
	_ Store = (*Region)(nil)
)
