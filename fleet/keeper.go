package fleet

import (
	"context"
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
	life   context.Context
	end    context.CancelFunc
	news   chan struct{} // buffered
	begun  atomic.Bool

	// stepping is held to change the regional semaphore, while stores are called,
	// and before mu. What follows it is under it, or fixed once the keeper has
	// begun.
	stepping *sema.Semaphore
	global   *Semaphore // its own, besides the program's of that name
	ttl      protocol.Micros
	window   protocol.Micros // of a Rate
	config   protocol.Config // of the regional semaphore
	session  protocol.Session
	owner    protocol.Owner
	seq      uint64

	mu      sync.Mutex
	told    protocol.Config // of the global semaphore
	drained bool            // the region's own order, whatever the global semaphore's
	version uint64          // counts what regional clients see change
	share   share

	ears ears
}

func newKeeper(r *Region, name string) *keeper {
	life, end := context.WithCancel(r.workers.life)
	return &keeper{region: r, name: name, life: life, end: end, news: make(chan struct{}, 1), stepping: sema.New(1)}
}

// begin makes the regional semaphore, or takes over one that is there: what is
// in use of it has to be leased first. Once that is done it does nothing.
func (k *keeper) begin(ctx context.Context, c protocol.Config) error {
	if k.begun.Load() {
		return k.alive()
	}
	ctx, cancel := k.within(ctx)
	defer cancel()
	turn, err := k.stepping.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer turn.Release()
	if k.begun.Load() || k.alive() != nil {
		return k.alive()
	}
	if err := k.open(ctx, shareOf(c)); err != nil {
		return err
	}
	k.ttl, k.window = k.config.TTL, k.config.Window
	if k.global == nil {
		// What of a rate was spent stays spent for a window, though the block was
		// trusted up to two thirds of the TTL.
		ttl := TTL(micros(max(k.ttl, 3*k.window)))
		if k.global, err = k.region.global.lend(k, k.name, c.Capacity, ttl, Ramp(c.Ramp)); err != nil {
			return err
		}
	}
	k.told, k.drained, k.version = protocol.Config{Capacity: c.Capacity, Ramp: c.Ramp}, k.config.Draining, k.config.Version
	if _, err := k.refresh(ctx); err != nil {
		return err
	}
	if err := k.setCapacity(ctx, 0); err != nil {
		return err
	}
	k.begun.Store(true)
	k.region.workers.start(k.run)
	return nil
}

// within is a context that ends with the keeper, whatever its caller waits for.
func (k *keeper) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(k.life, func() { cancel(k.alive()) })
	return ctx, func() { stop(); cancel(nil) }
}

// replyTimeout is how long the regional store may take: not so long that one lost
// message costs what the region has.
func (k *keeper) replyTimeout() time.Duration {
	if k.config.TTL == 0 {
		return replyTimeout
	}
	return min(replyTimeout, micros(k.config.TTL/6))
}

func (k *keeper) alive() error {
	if k.life.Err() != nil {
		return &sema.Error{Op: "open", Name: k.name, Err: sema.ErrClosed}
	}
	return nil
}

// open begins the keeper's own session, by which it looks.
func (k *keeper) open(ctx context.Context, c protocol.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, k.replyTimeout())
	defer cancel()
	k.seq = 0
	k.owner = protocol.Owner{Key: protocol.NewKey()}
	by := protocol.Opener{Client: protocol.NewClient("region"), Owner: k.owner}
	k.session, k.config, err = k.region.local.Open(ctx, k.name, c, by)
	return err
}

// notice is how the regional semaphore was when a batch was answered.
func (k *keeper) notice(r protocol.Reply) {
	since, last := k.ears.read()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.share.note(r)
	ready := k.share.ready(last)
	if since != 0 || k.share.ask != nil || k.share.free() < ready/2 || k.share.settled && k.share.free() > ready {
		k.wake()
	}
}

// heard handles a reply of the global store, with that session's mutex held.
func (k *keeper) heard(r protocol.Reply) {
	if k.ears.hear(r, k.region.global.clock()) {
		k.wake()
	}
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
	if inUse == 0 {
		return 0, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.region.global.clock()
	s := &k.share
	if now-s.looked > k.ttl/32 || now >= s.trusted || s.held < inUse {
		s.look(now)
	}
	return s.trusted - now, s.held >= inUse && now < s.trusted
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
		k.pause(next)
	}
}

// pause waits for news, for as long as d if that is not 0.
func (k *keeper) pause(d time.Duration) {
	var due <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-k.news:
	case <-due:
	case <-k.life.Done():
	}
}

// step brings capacity, blocks and demand together, and returns when to look again; 0:
// when there is news.
func (k *keeper) step(ctx context.Context) (next time.Duration, err error) {
	turn, err := k.stepping.Acquire(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer turn.Release()
	if err := k.see(ctx); err != nil {
		return 0, err
	}
	now := k.region.global.clock()
	since, last := k.ears.read()
	if c, fresh := k.ears.config(); fresh {
		k.tell(c)
	}
	k.mu.Lock()
	capacity := k.share.target(now, k.region.quantum, since, last)
	k.mu.Unlock()
	if err := k.setCapacity(ctx, capacity); err != nil {
		return 0, err
	}
	shed, err := k.shed(ctx, capacity)
	if err != nil {
		return 0, err
	}
	return micros(k.demand(now, since, shed, last)), nil
}

// see looks how the regional semaphore is.
func (k *keeper) see(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.replyTimeout())
	defer cancel()
	for range 2 {
		k.seq++
		r, err := k.region.local.Apply(ctx, k.name, protocol.Batch{Session: k.session, Owner: k.owner, Seq: k.seq})
		if err != nil {
			return err
		}
		if r.Status == protocol.Applied {
			k.config = r.Config
			k.mu.Lock()
			k.share.note(r)
			k.mu.Unlock()
			return nil
		}
		if err := k.open(ctx, k.config); err != nil {
			return err
		}
	}
	return errForgotten
}

// stop ends it. What of the blocks is in use goes back when nobody trusts in it
// any more, and of a Rate when it is not spent any more.
func (k *keeper) stop() {
	k.end()
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	turn, err := k.stepping.Acquire(ctx, 1)
	if err == nil && k.begun.Load() && k.setCapacity(ctx, 0) == nil && k.see(ctx) == nil {
		k.mu.Lock()
		k.share.giveBack(k.share.held - k.share.inUse)
		k.mu.Unlock()
	}
	turn.Release()
	k.mu.Lock()
	rest := k.share.blocks
	k.share = share{}
	k.mu.Unlock()
	if k.begun.Load() || err == nil && k.global != nil {
		time.AfterFunc(micros(max(k.ttl*2/3, k.window)), func() { k.leave(rest) })
	}
}

// leave gives back the rest, and is done with the global semaphore when that was
// heard there.
func (k *keeper) leave(rest []leasedBlock) {
	for _, b := range rest {
		b.Release()
	}
	if k.global.part(k.region.global.life) {
		k.region.global.unlend(k.global)
	}
}
