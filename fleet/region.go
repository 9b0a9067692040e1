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

// A Region is an engine for the clients of one region, as near to them as local
// is. The capacity of its semaphores is leased from the semaphores of the same
// names at a global engine, in blocks that grow with demand and go back when
// other regions wait. So an acquire costs a round trip within the region, and
// the bound is that of the global semaphore, over all regions.
//
// What regional clients hold is never trusted for longer than the region's block
// is, by this process's own clock: a region that is cut off from the global
// engine answers its clients no more when its block has run out, and they have
// lost their permits by then.
//
// While other regions wait, a region gives back half of what it does not use,
// again and again; after a quantum also what it has beyond its even share, as
// that is released. So a region that has less than its share waits for a round
// trip to the global engine, a quantum, and the permits that are out now, at
// most.
//
// There is one Region for a local engine, which nobody uses but through it: run
// it in a server that the region's clients reach. Configure, through a region,
// sets MaxWaiters and Draining for the region, capacity and ramp for all; a drain
// of the global semaphore is one of every region. A semaphore with a Rate is a
// Rate in each region; its share is leased for three windows at a time, so that
// what was spent by a region that is gone stays spent, and a region that died
// keeps its share for as long. To revoke a region's block at the global engine
// frees it while regional permits may be out for up to two thirds of a TTL.
//
// Several regions may lease through one client, and the program may use that
// for itself. It is closed after them, by who made it.
//
// Fences are the regional semaphore's: they tell the living from the gone among
// the clients of one region, and must not be shown to a [Guard] that sees those
// of another.
type Region struct {
	local   Store
	global  *Client
	quantum protocol.Micros
	workers workers

	mu      sync.Mutex
	keepers map[string]*keeper
}

// NewRegion makes the engine of a region, which closes local in the end. What it
// has beyond its share is lent out for a quantum when others wait, 50 ms if it
// is 0.
func NewRegion(local Store, global *Client, quantum time.Duration) *Region {
	if quantum <= 0 {
		quantum = defaultQuantum
	}
	r := &Region{local: local, global: global, quantum: protocol.Micros(quantum.Microseconds()), keepers: map[string]*keeper{}}
	r.workers.begin()
	return r
}

// Open is for [Store].
func (r *Region) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
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

// Apply is for [Store].
func (r *Region) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
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
		return protocol.Reply{}, &sema.Error{Op: "apply", Name: name, Err: sema.ErrUnavailable, Detail: "the region has no valid lease for what is in use; is the global engine within reach?"}
	}
	reply.Valid = valid
	reply.Config = k.shown(reply.Config)
	return reply, nil
}

// Listen is for [Store].
func (r *Region) Listen(ctx context.Context, instance string, hint func(name string)) error {
	return r.local.Listen(ctx, instance, hint)
}

// Inspect is for [Store]: what the region's clients hold. Effective is what the
// region has of the capacity.
func (r *Region) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
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
	return r.local.List(ctx, q)
}

// Administer is for [Store].
func (r *Region) Administer(ctx context.Context, name string, c Command) error {
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

// Close is for [Store]. What of the blocks is not in use goes back with it; the
// rest when no client of the region trusts in it any more, unless the global
// client is closed before: then a TTL later.
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

// A ShareInfo is what a region has of a semaphore.
type ShareInfo struct {
	Held     int64         // leased from the global semaphore
	InUse    int64         // by the region's clients, as last seen
	Wanted   int64         // by those of them who wait, at least
	Left     time.Duration // for how long it surely is held, if nothing more is heard
	Recalled bool          // other regions wait
}

// Share is what the region has of a semaphore that its clients have used since
// it began; ok is false if they have not.
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
