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

// A Region is a store for the clients of one region. It leases the capacity of its
// semaphores from the semaphores of the same names at a global store, in blocks. Blocks
// grow with demand and are returned when other regions wait. So an acquire costs one round
// trip to the region's local store, and the bound of the global semaphore holds over all
// regions.
//
// Permits of regional clients are valid no longer than the region's blocks, by the clock of
// this process. A region that cannot reach the global store stops replying to its clients
// when its blocks expire, and by then they have lost their permits.
//
// While other regions wait, a region repeatedly returns half of its unused permits. After
// a quantum it also returns permits beyond its even share, as they are released. So a
// region below its share waits at most for a round trip to the global store, a quantum,
// and the release of permits that are held now.
//
// Use one Region per local store, and use that store only through it: run the Region in a
// server that the region's clients reach. Configure, called through a region, sets
// MaxWaiters and Draining for the region, and capacity and ramp for all regions. A drain
// of the global semaphore drains every region.
//
// With a rate, each region limits its clients to the region's share of the rate. The share
// is leased for three windows at a time. So permits that a region has spent stay spent
// after the region is gone, and a crashed region keeps its share for that long.
//
// Revoking a region's block at the global store frees it while regional permits may still be
// held, for up to two thirds of a TTL.
//
// Several regions may lease through one client, which the program may also use itself.
// Close the client after the regions.
//
// Fences are those of the regional semaphore: they distinguish the leases of one region. Do
// not pass fences of two regions to one [Guard].
type Region struct {
	local   Store
	global  *Client
	quantum protocol.Micros
	workers workers

	mu      sync.Mutex
	keepers map[string]*keeper
}

// NewRegion returns the store of a region. Closing it closes local. While other regions
// wait, the region keeps permits beyond its share for a quantum. Default (0) 50ms.
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
	if c.Numbered {
		return 0, protocol.Config{}, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: "a region cannot number its permits: other regions would use the same numbers", Advice: "use the global store itself"}
	}
	var k *keeper
	var err error
	if by.MustExist {
		k, err = r.existingKeeper(ctx, name)
	} else {
		k, err = r.openKeeper(ctx, name, c)
	}
	if err != nil {
		return 0, protocol.Config{}, err
	}
	if err := k.syncGlobalConfig(ctx); err != nil {
		return 0, protocol.Config{}, err
	}
	session, stored, err := r.local.Open(ctx, name, regionalConfig(c), by)
	return session, k.visibleConfig(stored), err
}

// Apply implements [Store].
func (r *Region) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if err := checkContext(ctx, "apply", name); err != nil {
		return protocol.Reply{}, err
	}
	k, err := r.existingKeeper(ctx, name)
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
	k.noteRegionalReply(reply)
	valid, ok := k.covers(reply.InUse)
	if !ok {
		return protocol.Reply{}, &sema.Error{Op: "apply", Name: name, Err: sema.ErrUnavailable, Detail: "the region has no valid lease for the permits in use", Advice: "check that the region can reach the global store"}
	}
	reply.Valid = valid
	reply.Config = k.visibleConfig(reply.Config)
	return reply, nil
}

// Listen implements [Store].
func (r *Region) Listen(ctx context.Context, instance string, notify func(name string)) error {
	if err := checkContext(ctx, "listen", ""); err != nil {
		return err
	}
	return r.local.Listen(ctx, instance, notify)
}

// Inspect implements [Store]. It returns the leases of the region's clients. Effective is
// the region's share of the capacity.
func (r *Region) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	if err := checkContext(ctx, "inspect", name); err != nil {
		return protocol.Snapshot{}, err
	}
	k, err := r.existingKeeper(ctx, name)
	if err != nil {
		return protocol.Snapshot{}, err
	}
	snapshot, err := r.local.Inspect(ctx, name)
	snapshot.Config = k.visibleConfig(snapshot.Config)
	return snapshot, err
}

// List implements [Store]. Capacities are the region's shares.
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
	k, err := r.existingKeeper(ctx, name)
	switch {
	case err != nil:
		return err
	case c.Configure != nil:
		return k.configure(ctx, *c.Configure)
	case !c.Delete:
		return r.local.Administer(ctx, name, c)
	}
	if err := k.endAt(c.DeleteVersion); err != nil {
		return err
	}
	k.stop()
	err = r.local.Administer(ctx, name, Command{Delete: true})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keepers[name] == k {
		delete(r.keepers, name) // the next call creates another one
	}
	return err
}

// Close implements [Store]. It returns unused permits to the global store. The rest is
// returned when no client of the region relies on it any more, or expires a TTL after the
// global client is closed.
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

// ShareInfo describes a region's share of a semaphore.
type ShareInfo struct {
	Held     int64         // permits leased from the global semaphore
	InUse    int64         // permits that the region's clients hold, as last known
	Wanted   int64         // permits that their waiters need, at least
	Left     time.Duration // how long Held is valid at least, should the global store not reply any more
	Recalled bool          // other regions wait
}

// Share returns the region's share of a semaphore. It returns false if no client of the
// region has used the semaphore since the region was created.
func (r *Region) Share(name string) (info ShareInfo, ok bool) {
	r.mu.Lock()
	k := r.keepers[name]
	r.mu.Unlock()
	if k == nil || !k.started.Load() {
		return ShareInfo{}, false
	}
	since, _ := k.inbox.read()
	now := r.global.clock()
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.share
	s.refresh(now)
	return ShareInfo{s.held, s.inUse, s.wanted, micros(max(0, s.trustedUntil-now)), since != 0}, true
}

// existingKeeper returns the keeper of a semaphore that exists in the local store, although
// no client may have opened it since this process began.
func (r *Region) existingKeeper(ctx context.Context, name string) (*keeper, error) {
	r.mu.Lock()
	k := r.keepers[name]
	r.mu.Unlock()
	if k != nil && k.started.Load() {
		return k, nil
	}
	snapshot, err := r.local.Inspect(ctx, name)
	if err != nil {
		return nil, err
	}
	c := snapshot.Config
	c.Capacity = c.Whole
	return r.openKeeper(ctx, name, c)
}

// openKeeper returns the started keeper of a semaphore, and creates it if necessary. It does
// not retain a keeper whose semaphore could not be opened.
func (r *Region) openKeeper(ctx context.Context, name string, c protocol.Config) (*keeper, error) {
	r.mu.Lock()
	k := r.keepers[name]
	if k == nil {
		k = newKeeper(r, name)
		r.keepers[name] = k
	}
	k.openers++
	r.mu.Unlock()
	err := k.start(ctx, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.openers--; k.openers == 0 && k.global == nil && r.keepers[name] == k {
		k.end()
		delete(r.keepers, name)
	}
	return k, err
}

// regionalConfig returns the initial configuration of a regional semaphore, without a share.
func regionalConfig(c protocol.Config) protocol.Config {
	c.Whole, c.Capacity, c.Ramp = c.Capacity, 0, 0
	return c
}

var (
	_ Store = (*Region)(nil)
)
