package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A keeper leases a region's share of one semaphore from the global store, and sets the
// capacity of the regional semaphore to that share.
//
// The order of its steps makes the bound of the global semaphore hold over all regions. The
// regional capacity is raised only after a block was granted. A block is returned only after
// the capacity was lowered and the permits in use were seen to fit into the other blocks.
type keeper struct {
	region  *Region
	name    string
	life    context.Context
	end     context.CancelFunc
	wakeups chan struct{} // buffered; receives when there may be something to do
	started atomic.Bool
	openers int // calls of start, guarded by the region's mu

	// stepLock is held to change the regional semaphore, also while stores are called. It
	// is acquired before mu. It guards the fields below, or they are fixed once the keeper
	// has started.
	stepLock *sema.Semaphore
	global   *Semaphore // the keeper's own, apart from a semaphore of that name which the program uses
	ttl      protocol.Micros
	window   protocol.Micros // of a Rate; 0: none
	config   protocol.Config // of the regional semaphore, as last known
	session  protocol.Session
	owner    protocol.Owner
	seq      uint64

	mu           sync.Mutex
	globalConfig protocol.Config // of the global semaphore, as last known
	drained      bool            // the region itself is draining, whether or not the global semaphore is
	version      uint64          // incremented when the configuration changes that regional clients see
	share        share

	inbox replyInbox
}

func newKeeper(r *Region, name string) *keeper {
	life, end := context.WithCancel(r.workers.life)
	return &keeper{region: r, name: name, life: life, end: end, wakeups: make(chan struct{}, 1), stepLock: sema.New(1)}
}

// start creates the regional semaphore, or takes over an existing one, whose permits in use
// must be leased before more are granted. It does nothing once the keeper has started.
func (k *keeper) start(ctx context.Context, c protocol.Config) error {
	if k.started.Load() {
		return k.checkAlive()
	}
	ctx, cancel := k.withLife(ctx)
	defer cancel()
	lock, err := k.stepLock.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer lock.Release()
	if k.started.Load() || k.checkAlive() != nil {
		return k.checkAlive()
	}
	if err := k.open(ctx, regionalConfig(c)); err != nil {
		return err
	}
	k.ttl, k.window = k.config.TTL, k.config.Window
	if k.global == nil {
		// Permits of a rate may be spent until the block is trusted no longer, at two
		// thirds of the TTL. They must stay leased for one more window.
		ttl := TTL(micros(max(k.ttl, 3*k.window)))
		if k.global, err = k.region.global.openLent(k, k.name, c.Capacity, ttl, Ramp(c.Ramp)); err != nil {
			return err
		}
	}
	k.globalConfig, k.drained, k.version = protocol.Config{Capacity: c.Capacity, Ramp: c.Ramp}, k.config.Draining, k.config.Version
	if _, err := k.fetchGlobalConfig(ctx); err != nil {
		return err
	}
	if err := k.setCapacity(ctx, 0); err != nil {
		return err
	}
	k.started.Store(true)
	k.region.workers.start(k.run)
	return nil
}

// withLife returns a context that ends with ctx or with the keeper.
func (k *keeper) withLife(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(k.life, func() { cancel(k.checkAlive()) })
	return ctx, func() { stop(); cancel(nil) }
}

// replyTimeout returns how long to wait for the regional store: at most TTL/6, so that one
// lost message does not cost the region its share.
func (k *keeper) replyTimeout() time.Duration {
	if k.config.TTL == 0 {
		return replyTimeout
	}
	return min(replyTimeout, micros(k.config.TTL/6))
}

func (k *keeper) checkAlive() error {
	if k.life.Err() != nil {
		return &sema.Error{Op: "open", Name: k.name, Err: sema.ErrClosed}
	}
	return nil
}

// open opens the keeper's own session, which it uses to poll.
func (k *keeper) open(ctx context.Context, c protocol.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, k.replyTimeout())
	defer cancel()
	k.seq = 0
	k.owner = protocol.Owner{Key: protocol.NewKey()}
	by := protocol.Opener{Client: protocol.NewClient("region"), Owner: k.owner}
	k.session, k.config, err = k.region.local.Open(ctx, k.name, c, by)
	return err
}

// noteRegionalReply notes the usage in a reply of the regional store, and wakes the keeper
// if the share should change.
func (k *keeper) noteRegionalReply(r protocol.Reply) {
	since, last := k.inbox.read()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.share.note(r)
	reserve := k.share.reserve(last)
	if since != 0 || k.share.request != nil || k.share.free() < reserve/2 || k.share.settled && k.share.free() > reserve {
		k.wake()
	}
}

// noteGlobalReply implements [lender].
func (k *keeper) noteGlobalReply(r protocol.Reply) {
	if k.inbox.put(r, k.region.global.clock()) {
		k.wake()
	}
}

func (k *keeper) wake() {
	select {
	case k.wakeups <- struct{}{}:
	default:
	}
}

// covers reports whether the blocks cover the permits in use, and for how long that is
// certain. A time of 0 means no bound, since nothing is in use.
func (k *keeper) covers(inUse int64) (valid protocol.Micros, ok bool) {
	if inUse == 0 {
		return 0, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.region.global.clock()
	s := &k.share
	if now-s.refreshedAt > k.ttl/32 || now >= s.trustedUntil || s.held < inUse {
		s.refresh(now)
	}
	return s.trustedUntil - now, s.held >= inUse && now < s.trustedUntil
}

// run adjusts the share until the keeper is stopped.
func (k *keeper) run() {
	for pause := (backoff{}); k.life.Err() == nil; {
		next, err := k.step(k.life)
		if err != nil {
			next = pause.next()
		} else {
			pause = backoff{}
		}
		k.pause(next)
	}
}

// pause waits for a wakeup, and for at most d unless d is 0.
func (k *keeper) pause(d time.Duration) {
	var due <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-k.wakeups:
	case <-due:
	case <-k.life.Done():
	}
}

// step adjusts the regional capacity, the blocks and the request for more. It returns the
// time until the next step; 0: at the next wakeup.
func (k *keeper) step(ctx context.Context) (next time.Duration, err error) {
	lock, err := k.stepLock.Acquire(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer lock.Release()
	if err := k.poll(ctx); err != nil {
		return 0, err
	}
	now := k.region.global.clock()
	since, last := k.inbox.read()
	if c, fresh := k.inbox.takeConfig(); fresh {
		k.setGlobalConfig(c)
	}
	k.mu.Lock()
	capacity := k.share.target(now, k.region.quantum, since, last)
	k.mu.Unlock()
	if err := k.setCapacity(ctx, capacity); err != nil {
		return 0, err
	}
	released, err := k.releaseSurplus(ctx, capacity)
	if err != nil {
		return 0, err
	}
	return micros(k.requestMissing(now, since, released, last)), nil
}

// poll sends an empty batch and notes the usage of the regional semaphore.
func (k *keeper) poll(ctx context.Context) error {
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
	return errUnknownSession
}

// endAt ends the keeper if clients see this version of the configuration, or if version is 0.
func (k *keeper) endAt(version uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if version != 0 && version != k.version {
		return protocol.ErrConflict
	}
	k.end()
	return nil
}

// stop stops the keeper and returns the unused part of its blocks. The rest is returned
// when no client of the region relies on it any more: after two thirds of the TTL, and for
// a Rate after a window at least.
func (k *keeper) stop() {
	k.end()
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	lock, err := k.stepLock.Acquire(ctx, 1)
	if err == nil && k.started.Load() && k.setCapacity(ctx, 0) == nil && k.poll(ctx) == nil {
		k.mu.Lock()
		k.share.release(k.share.held - k.share.inUse)
		k.mu.Unlock()
	}
	lock.Release()
	k.mu.Lock()
	rest := k.share.blocks
	k.share = share{}
	k.mu.Unlock()
	if k.started.Load() || err == nil && k.global != nil {
		time.AfterFunc(micros(max(k.ttl*2/3, k.window)), func() { k.releaseRest(rest) })
	}
}

// releaseRest releases the remaining blocks, and closes the keeper's global semaphore. It
// is removed from the client once the store has confirmed that.
func (k *keeper) releaseRest(rest []leasedBlock) {
	for _, b := range rest {
		b.Release()
	}
	if k.global.closeLent(k.region.global.life) {
		k.region.global.removeLent(k.global)
	}
}
