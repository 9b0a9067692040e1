package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// fetchGlobalConfig reads the configuration of the global semaphore, unless a session is
// open: then replies contain it. It reports whether the configuration has changed.
func (k *keeper) fetchGlobalConfig(ctx context.Context) (changed bool, err error) {
	if k.global.connected() {
		return false, nil
	}
	snapshot, err := k.region.global.store.Inspect(ctx, k.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // the first lease creates it
	case err != nil:
		return false, err
	}
	if err := k.checkConfig(snapshot.Config); err != nil {
		return false, &sema.Error{Op: "open", Name: k.name, Err: err}
	}
	return k.setGlobalConfig(snapshot.Config), nil
}

// unsuitable is the error of a global semaphore from which regions cannot lease.
type unsuitable string

func (u unsuitable) Error() string { return string(u) }
func (unsuitable) Unwrap() error   { return sema.ErrInvalid }

// Hint returns the advice that [sema.Hint] reports.
func (unsuitable) Hint() string { return "use another name, or delete the global semaphore" }

// checkConfig implements [lender]. It fails if the keeper cannot lease from a global
// semaphore with this configuration.
func (k *keeper) checkConfig(stored protocol.Config) error {
	switch {
	case stored.Kind == protocol.Rate:
		return unsuitable("the global semaphore is a rate; regions lease from a plain semaphore, also for a regional rate")
	case stored.TTL < 3*k.window:
		return unsuitable(fmt.Sprintf("the global semaphore has a TTL of %v; a rate over %v needs at least %v", micros(stored.TTL), micros(k.window), micros(3*k.window)))
	}
	return nil
}

// setGlobalConfig notes the configuration of the global semaphore, and reports whether it
// has changed.
func (k *keeper) setGlobalConfig(c protocol.Config) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := c.Capacity != k.globalConfig.Capacity || c.Draining != k.globalConfig.Draining || c.Ramp != k.globalConfig.Ramp
	if changed {
		k.version++
	}
	k.globalConfig = c
	return changed
}

// syncGlobalConfig reads the global configuration, and applies a change to the regional
// semaphore.
func (k *keeper) syncGlobalConfig(ctx context.Context) error {
	ctx, cancel := k.withLife(ctx)
	defer cancel()
	changed, err := k.fetchGlobalConfig(ctx)
	if err != nil || !changed {
		return err
	}
	lock, err := k.stepLock.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer lock.Release()
	return k.setCapacity(ctx, k.config.Capacity)
}

// visibleConfig returns the configuration that regional clients see: capacity and ramp are
// the global ones, the rest is the region's own.
func (k *keeper) visibleConfig(c protocol.Config) protocol.Config {
	k.mu.Lock()
	defer k.mu.Unlock()
	c.Capacity, c.Whole, c.Ramp, c.Version = k.globalConfig.Capacity, 0, k.globalConfig.Ramp, k.version
	return c
}

// setCapacity sets the capacity of the regional semaphore, at most to the global one, and
// applies a drain of the global semaphore.
func (k *keeper) setCapacity(ctx context.Context, capacity int64) error {
	k.mu.Lock()
	global, drained := k.globalConfig, k.drained
	k.mu.Unlock()
	return k.changeConfig(ctx, func(c *protocol.Config) {
		c.Capacity, c.Whole, c.Draining = min(capacity, global.Capacity), global.Capacity, drained || global.Draining
	})
}

// changeConfig changes the regional configuration. Only the keeper does so.
func (k *keeper) changeConfig(ctx context.Context, change func(*protocol.Config)) error {
	changed := k.config
	change(&changed)
	if changed == k.config {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.replyTimeout())
	defer cancel()
	if err := k.region.local.Administer(ctx, k.name, Command{Configure: &changed}); err != nil {
		if errors.Is(err, protocol.ErrConflict) { // the reply to the last change was lost
			err = errors.Join(err, k.poll(ctx))
		}
		return err
	}
	k.config = changed
	k.config.Version++
	return nil
}

// configure applies a change that a client of the region requests. Capacity and ramp change
// for all regions, the rest for this region.
func (k *keeper) configure(ctx context.Context, c protocol.Config) error {
	ctx, cancel := k.withLife(ctx)
	defer cancel()
	lock, err := k.stepLock.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer lock.Release()
	k.mu.Lock()
	global, version := k.globalConfig, k.version
	k.mu.Unlock()
	switch {
	case c.Version != version:
		return protocol.ErrConflict
	case c.TTL != k.config.TTL || c.Kind != k.config.Kind || c.Window != k.config.Window:
		return errors.New("kind, TTL and window are fixed when a semaphore is created")
	case c.Capacity != global.Capacity || c.Ramp != global.Ramp:
		if err := k.region.global.Configure(ctx, k.name, func(g *Config) { g.Capacity, g.Ramp = c.Capacity, c.Ramp }); err != nil {
			return err
		}
		global.Capacity, global.Ramp = c.Capacity, c.Ramp
		k.inbox.takeConfig() // discard an older one
		k.setGlobalConfig(global)
	}
	k.mu.Lock()
	k.drained = c.Draining && (k.drained || !global.Draining) // a drain of the global semaphore is not the region's own
	k.version++
	k.mu.Unlock()
	k.wake()
	return k.changeConfig(ctx, func(own *protocol.Config) {
		own.Whole, own.Draining, own.MaxWaiters = global.Capacity, c.Draining || global.Draining, c.MaxWaiters
		own.Capacity = min(own.Capacity, own.Whole)
	})
}
