package fleet

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// Config is what is stored with a semaphore. It applies to all its clients, and is
// changed by [Client.Configure].
type Config struct {
	Capacity   int64         // permits in all; 0 pauses the semaphore
	MaxWaiters int           // queued callers; 0: no bound; [sema.NoWaiters]: no caller may wait
	TTL        time.Duration // after which a client that does not renew has lost its permits; fixed
	Ramp       int64         // permits per second by which the capacity rises; 0: at once
	Rate       time.Duration // if not 0, the period in which Capacity permits may be acquired; fixed
	Draining   bool          // new acquires and waiters are rejected
	Version    uint64        // counts the changes
	Protocol   uint32        // version of the protocol that its clients use; may be raised by one when no older client is left
}

// configOf returns what a store has as a Config.
func configOf(c protocol.Config) Config {
	return Config{
		Capacity: c.Capacity, MaxWaiters: int(c.MaxWaiters), TTL: micros(c.TTL), Ramp: c.Ramp, Rate: micros(c.Window),
		Draining: c.Draining, Version: c.Version, Protocol: c.Protocol,
	}
}

// protocol returns the configuration as stores have it.
func (c Config) protocol() protocol.Config {
	var stored protocol.Config
	c.Protocol = protocol.Version
	c.applyTo(&stored)
	return stored
}

// applyTo sets what the configuration has in a stored one.
func (c Config) applyTo(stored *protocol.Config) {
	stored.Capacity, stored.MaxWaiters, stored.Ramp, stored.Draining = c.Capacity, int64(c.MaxWaiters), c.Ramp, c.Draining
	stored.TTL, stored.Window, stored.Version = protocol.Micros(c.TTL.Microseconds()), protocol.Micros(c.Rate.Microseconds()), c.Version
	stored.Protocol, stored.Kind = c.Protocol, protocol.Concurrency
	if c.Rate != 0 {
		stored.Kind = protocol.Rate
	}
}
