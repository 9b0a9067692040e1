package fleet

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// Config is the stored configuration of a semaphore. It applies to all its clients.
// [Client.Configure] changes it.
type Config struct {
	Capacity   int64         // total permits; 0 pauses the semaphore
	MaxWaiters int           // bound of the queue; 0: no bound; [sema.NoWaiters]: no caller may wait
	TTL        time.Duration // after which a client that does not renew its session has lost its permits; fixed
	Ramp       int64         // permits per second by which a raised capacity grows; 0: no ramp
	Rate       time.Duration // period in which Capacity permits may be acquired; 0: no rate; fixed
	Numbered   bool          // permits have numbers, see [sema.Permit.Slots]; fixed
	Draining   bool          // new acquires and waiters are rejected
	Version    uint64        // incremented by each change
	Protocol   uint32        // protocol version of its clients; may be raised by one after all older clients are gone
}

// configOf converts a stored configuration to a Config.
func configOf(c protocol.Config) Config {
	return Config{
		Capacity: c.Capacity, MaxWaiters: int(c.MaxWaiters), TTL: micros(c.TTL), Ramp: c.Ramp, Rate: micros(c.Window),
		Numbered: c.Numbered, Draining: c.Draining, Version: c.Version, Protocol: c.Protocol,
	}
}

// protocol returns the configuration to create a semaphore with.
func (c Config) protocol() protocol.Config {
	var stored protocol.Config
	c.Protocol = protocol.Version
	c.applyTo(&stored)
	return stored
}

// applyTo sets the fields of a stored configuration from c.
func (c Config) applyTo(stored *protocol.Config) {
	stored.Capacity, stored.MaxWaiters, stored.Ramp, stored.Draining = c.Capacity, int64(c.MaxWaiters), c.Ramp, c.Draining
	stored.TTL, stored.Window, stored.Version = protocol.Micros(c.TTL.Microseconds()), protocol.Micros(c.Rate.Microseconds()), c.Version
	stored.Protocol, stored.Kind, stored.Numbered = c.Protocol, protocol.Concurrency, c.Numbered
	if c.Rate != 0 {
		stored.Kind = protocol.Rate
	}
}
