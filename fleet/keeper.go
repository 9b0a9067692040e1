package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A keeper leases a region's share of one semaphore, and sets the capacity there
// by it.
//
// Its invariant, by which the bound of the global semaphore is that of all
// regions: the regional capacity is raised only after a block was had, and a
// block given back only after the capacity was lowered and what is in use was
// seen to fit into the rest.
type keeper struct {
	region *Region
	name   string
	ttl    protocol.Micros
	life   context.Context
	end    context.CancelFunc
	news   chan struct{} // buffered
	begun  atomic.Bool

	stepping sync.Mutex // held to change the regional semaphore; before mu, and what follows is under it
	global   *Semaphore
	config   protocol.Config // of the regional semaphore
	session  protocol.Session
	seq      uint64

	mu       sync.Mutex
	seen     sight
	low      int64           // the least that was free since idle
	idle     protocol.Micros // since when low is noted
	capacity int64           // of the regional semaphore
	blocks   []leasedBlock   // the oldest first
	held     int64           // what they weigh
	trusted  protocol.Micros // until when they surely are held, as of looked
	looked   protocol.Micros
	ask      *asking

	ears recall
}

// A sight is how much of a regional semaphore is used and wanted.
type sight struct{ inUse, wanted, first int64 }

// A leasedBlock is part of the share.
type leasedBlock struct {
	sema.Permit
	since protocol.Micros
}

// An asking is a block on its way.
type asking struct {
	least  int64
	cancel context.CancelFunc
}

// A recall is what the global engine said last. Its mutex is taken last of all.
type recall struct {
	mu    sync.Mutex
	since protocol.Micros // when other regions began to wait; 0: they do not
	last  protocol.Reply
}

func newKeeper(r *Region, name string, ttl protocol.Micros) *keeper {
	life, end := context.WithCancel(r.life)
	return &keeper{region: r, name: name, ttl: ttl, life: life, end: end, news: make(chan struct{}, 1)}
}

// begin makes the regional semaphore, or takes over one that is there: what is
// in use of it has to be leased first. Once that is done it does nothing.
func (k *keeper) begin(ctx context.Context, c protocol.Config) (err error) {
	k.stepping.Lock()
	defer k.stepping.Unlock()
	if k.begun.Load() {
		return nil
	}
	if k.life.Err() != nil {
		return &sema.Error{Op: "open", Name: k.name, Err: sema.ErrClosed}
	}
	k.global, err = k.region.global.Semaphore(k.name, Options{Capacity: c.Capacity, TTL: micros(c.TTL), Ramp: c.Ramp, MaxWait: untilTold})
	if err != nil {
		return err
	}
	c.Whole, c.Capacity, c.Ramp = c.Capacity, 0, 0
	if err := k.open(ctx, c); err != nil {
		return err
	}
	if err := k.setCapacity(ctx, 0); err != nil {
		return err
	}
	k.global.mu.Lock()
	k.global.lender = k
	k.global.mu.Unlock()
	k.begun.Store(true)
	k.region.workers.Go(k.run)
	return nil
}

// untilTold is for how long a block may be on its way.
const untilTold = 365 * 24 * time.Hour

// open begins the keeper's own session, by which it looks.
func (k *keeper) open(ctx context.Context, c protocol.Config) (err error) {
	k.seq = 0
	k.session, k.config, err = k.region.local.Open(ctx, k.name, c, "region of "+k.region.global.instance)
	return err
}

// notice is how the regional semaphore was when a batch was answered.
func (k *keeper) notice(r protocol.Reply) {
	since, last := k.ears.read()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note(sight{r.InUse, r.Wanted, r.First})
	if since != 0 || k.ask != nil || k.free() < k.ready(last)/2 {
		k.wake()
	}
}

// note notes what was seen. The mutex is held.
func (k *keeper) note(s sight) {
	k.seen = s
	k.low = min(k.low, k.free())
}

// free is what of the share is neither used nor wanted; less than 0 is missing.
// The mutex is held.
func (k *keeper) free() int64 { return k.held - k.seen.inUse - k.seen.wanted }

// ready is how much the region would like to have free: what is needed before
// more of it could come. The mutex is held.
func (k *keeper) ready(last protocol.Reply) int64 {
	return max(last.Cushion(k.seen.inUse), k.held/32)
}

// heard is what the global engine said, with that semaphore's mutex held.
func (k *keeper) heard(r protocol.Reply) {
	if k.ears.hear(r, k.region.global.clock()) {
		k.wake()
	}
}

// hear reports whether there is something to do.
func (e *recall) hear(r protocol.Reply, now protocol.Micros) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	news := r.Recall != (e.since != 0) || r.Share != e.last.Share
	e.last = r
	e.last.Fates = nil
	switch {
	case !r.Recall:
		e.since = 0
	case e.since == 0:
		e.since = now
	}
	return news
}

func (e *recall) read() (since protocol.Micros, last protocol.Reply) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.since, e.last
}

func (k *keeper) wake() {
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// covers reports whether the blocks cover what is in use, and for how long that
// is sure; 0 is without a bound, since nothing is in use.
func (k *keeper) covers(inUse int64) (valid protocol.Micros, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if inUse == 0 {
		return 0, true
	}
	now := k.region.global.clock()
	if now-k.looked > k.ttl/32 || now >= k.trusted || k.held < inUse {
		k.look(now)
	}
	return k.trusted - now, k.held >= inUse && now < k.trusted
}

// look forgets the blocks that were lost, and notes for how long the others are
// held. The mutex is held.
func (k *keeper) look(now protocol.Micros) {
	k.looked, k.trusted, k.held = now, 0, 0
	k.blocks = slices.DeleteFunc(k.blocks, func(b leasedBlock) bool { return b.Err() != nil })
	for i, b := range k.blocks {
		lease, _ := LeaseOf(b.Permit)
		until := now + protocol.Micros(lease.Left.Microseconds())
		if i == 0 || until < k.trusted {
			k.trusted = until
		}
		k.held += b.Weight()
	}
}

// run keeps the share until the end.
func (k *keeper) run() {
	for pause := newBackoff(); k.life.Err() == nil; {
		next, err := k.step(k.life)
		if err != nil {
			next = pause.next()
		} else {
			pause.reset()
		}
		timer := time.NewTimer(next)
		select {
		case <-k.news:
		case <-timer.C:
		case <-k.life.Done():
		}
		timer.Stop()
	}
}

// step brings capacity, blocks and demand together, and says when to look again.
func (k *keeper) step(ctx context.Context) (next time.Duration, err error) {
	k.stepping.Lock()
	defer k.stepping.Unlock()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	now := k.region.global.clock()
	if err := k.see(ctx); err != nil {
		return 0, err
	}
	since, last := k.ears.read()
	capacity := k.target(now, since, last)
	if err := k.setCapacity(ctx, capacity); err != nil {
		return 0, err
	}
	if err := k.shed(ctx, capacity); err != nil {
		return 0, err
	}
	k.demand(since != 0, last)
	next = micros(min(k.ttl/3, lately))
	if since != 0 {
		next = min(next, micros(max(k.region.quantum/8, since+k.region.quantum-now)))
	}
	return next, nil
}

// see looks how the regional semaphore is.
func (k *keeper) see(ctx context.Context) error {
	for range 2 {
		k.seq++
		r, err := k.region.local.Apply(ctx, k.name, protocol.Batch{Session: k.session, Seq: k.seq})
		if err != nil {
			return err
		}
		if r.Verdict == protocol.Heard {
			k.config = r.Config
			k.mu.Lock()
			k.note(sight{r.InUse, r.Wanted, r.First})
			k.mu.Unlock()
			return nil
		}
		if err := k.open(ctx, k.config); err != nil {
			return err
		}
	}
	return errForgotten
}

// lately is how long something has to be free before a region gives it back
// though nobody waits for it: some round trips around the world, so that it is
// not asked for again the moment it is gone.
const lately = protocol.Micros(250_000)

// target is what the regional capacity is to be.
func (k *keeper) target(now, recalled protocol.Micros, last protocol.Reply) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look(now)
	switch {
	case k.seen.first > k.held:
		return min(k.held, k.seen.inUse) // nobody holds what others wait for while it waits for more
	case recalled != 0:
		return k.keepRecalled(now, recalled, last.Share)
	case now-k.idle < lately:
		return k.held
	}
	surplus := max(0, k.low-k.ready(last))
	k.low, k.idle = k.free()-surplus, now
	return k.held - surplus
}

// keepRecalled is what may be lent while other regions wait: an even share, or
// what it has for less than a quantum if that is more; without half of what is
// free of it, and half of that again with each look. The mutex is held.
func (k *keeper) keepRecalled(now, recalled protocol.Micros, share int64) int64 {
	young := int64(0)
	for _, b := range k.blocks {
		if now < max(recalled, b.since)+k.region.quantum {
			young += b.Weight()
		}
	}
	keep := max(young, min(share, k.held))
	if free := keep - k.seen.inUse - k.seen.wanted; free > 0 {
		keep -= (free + 1) / 2
	}
	return keep
}

// setCapacity has the regional semaphore lend no more than that.
func (k *keeper) setCapacity(ctx context.Context, capacity int64) error {
	whole := k.global.capacity.Load()
	return k.change(ctx, func(c *protocol.Config) { c.Capacity, c.Whole = min(capacity, whole), whole })
}

// change changes the regional configuration. Nobody else does.
func (k *keeper) change(ctx context.Context, change func(*protocol.Config)) error {
	changed := k.config
	change(&changed)
	if changed == k.config {
		return nil
	}
	if err := k.region.local.Administer(ctx, k.name, Command{Configure: &changed}); err != nil {
		if errors.Is(err, protocol.ErrConflict) {
			err = errors.Join(err, k.see(ctx))
		}
		return err
	}
	k.config = changed
	k.config.Version++
	k.mu.Lock()
	k.capacity = changed.Capacity
	k.mu.Unlock()
	return nil
}

// configure is what a client of the region wants for it, and of the capacity for
// all.
func (k *keeper) configure(ctx context.Context, c protocol.Config) error {
	k.stepping.Lock()
	defer k.stepping.Unlock()
	if c.TTL != k.config.TTL || c.Kind != k.config.Kind || c.Window != k.config.Window {
		return errors.New("kind, TTL and window are fixed when a semaphore is made")
	}
	if c.Capacity != k.config.Whole {
		if err := k.region.global.Configure(ctx, k.name, func(g *protocol.Config) { g.Capacity = c.Capacity }); err != nil {
			return err
		}
		k.global.capacity.Store(c.Capacity)
		k.wake()
	}
	return k.change(ctx, func(own *protocol.Config) { own.Draining, own.MaxWaiters = c.Draining, c.MaxWaiters })
}
