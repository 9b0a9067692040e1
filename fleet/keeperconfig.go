package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// refresh asks for the configuration of the global semaphore, if there is no
// session in which it would be heard. It reports whether there was news.
func (k *keeper) refresh(ctx context.Context) (news bool, err error) {
	if k.global.connected() {
		return false, nil
	}
	snapshot, err := k.region.global.store.Inspect(ctx, k.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // it is made when something is leased
	case err != nil:
		return false, err
	}
	if err := k.accepts(snapshot.Config); err != nil {
		return false, &sema.Error{Op: "open", Name: k.name, Err: err}
	}
	return k.tell(snapshot.Config), nil
}

// unsuitable is why regions cannot lease from a semaphore.
type unsuitable string

func (u unsuitable) Error() string { return string(u) }
func (unsuitable) Unwrap() error   { return sema.ErrInvalid }

// Hint returns the advice of [sema.Hint].
func (unsuitable) Hint() string { return "use another name, or delete the global semaphore" }

// accepts says why a global semaphore is not one to lease from.
func (k *keeper) accepts(stored protocol.Config) error {
	switch {
	case stored.Kind == protocol.Rate:
		return unsuitable("the global semaphore is a rate, and regions lease from a plain one, also for rates of their own")
	case stored.TTL < 3*k.window:
		return unsuitable(fmt.Sprintf("the global semaphore has a TTL of %v, and a rate over %v needs one of %v or more", micros(stored.TTL), micros(k.window), micros(3*k.window)))
	}
	return nil
}

// tell is what the global semaphore is like. It reports whether that is new.
func (k *keeper) tell(c protocol.Config) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	news := c.Capacity != k.told.Capacity || c.Draining != k.told.Draining || c.Ramp != k.told.Ramp
	if news {
		k.version++
	}
	k.told = c
	return news
}

// learn is refresh, and has the regional semaphore go by it.
func (k *keeper) learn(ctx context.Context) error {
	ctx, cancel := k.within(ctx)
	defer cancel()
	news, err := k.refresh(ctx)
	if err != nil || !news {
		return err
	}
	turn, err := k.stepping.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer turn.Release()
	return k.setCapacity(ctx, k.config.Capacity)
}

// shown is the configuration as regional clients see it: that of the whole, but
// for what is the region's own.
func (k *keeper) shown(c protocol.Config) protocol.Config {
	k.mu.Lock()
	defer k.mu.Unlock()
	c.Capacity, c.Whole, c.Ramp, c.Version = k.told.Capacity, 0, k.told.Ramp, k.version
	return c
}

// setCapacity has the regional semaphore lend no more than that, of what the
// global one has, and drain if that does.
func (k *keeper) setCapacity(ctx context.Context, capacity int64) error {
	k.mu.Lock()
	told, drained := k.told, k.drained
	k.mu.Unlock()
	return k.change(ctx, func(c *protocol.Config) {
		c.Capacity, c.Whole, c.Draining = min(capacity, told.Capacity), told.Capacity, drained || told.Draining
	})
}

// change changes the regional configuration. Nobody else does.
func (k *keeper) change(ctx context.Context, change func(*protocol.Config)) error {
	changed := k.config
	change(&changed)
	if changed == k.config {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.replyTimeout())
	defer cancel()
	if err := k.region.local.Administer(ctx, k.name, Command{Configure: &changed}); err != nil {
		if errors.Is(err, protocol.ErrConflict) { // the answer to the last change was lost
			err = errors.Join(err, k.see(ctx))
		}
		return err
	}
	k.config = changed
	k.config.Version++
	return nil
}

// configure is what a client of the region wants for it, and of capacity and
// ramp for all.
func (k *keeper) configure(ctx context.Context, c protocol.Config) error {
	ctx, cancel := k.within(ctx)
	defer cancel()
	turn, err := k.stepping.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer turn.Release()
	k.mu.Lock()
	told, version := k.told, k.version
	k.mu.Unlock()
	switch {
	case c.Version != version:
		return protocol.ErrConflict
	case c.TTL != k.config.TTL || c.Kind != k.config.Kind || c.Window != k.config.Window:
		return errors.New("kind, TTL and window are fixed when a semaphore is made")
	case c.Capacity != told.Capacity || c.Ramp != told.Ramp:
		if err := k.region.global.Configure(ctx, k.name, func(g *Config) { g.Capacity, g.Ramp = c.Capacity, c.Ramp }); err != nil {
			return err
		}
		told.Capacity, told.Ramp = c.Capacity, c.Ramp
		k.ears.config() // which is older
		k.tell(told)
	}
	k.mu.Lock()
	k.drained = c.Draining && (k.drained || !told.Draining) // what the global one says is not the region's own
	k.version++
	k.mu.Unlock()
	k.wake()
	return k.change(ctx, func(own *protocol.Config) {
		own.Whole, own.Draining, own.MaxWaiters = told.Capacity, c.Draining || told.Draining, c.MaxWaiters
		own.Capacity = min(own.Capacity, own.Whole)
	})
}
