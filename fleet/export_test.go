package fleet

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// UseBubbleClock makes the client use the time of a synctest bubble instead of the
// machine's clock.
func (c *Client) UseBubbleClock() { c.UseSuspendableClock(func() time.Duration { return 0 }) }

// UseSuspendableClock makes the client use the time of a bubble plus the time for which the
// machine was suspended. Timers stop during that time, but the clock does not.
func (c *Client) UseSuspendableClock(slept func() time.Duration) {
	c.clock = func() protocol.Micros { return protocol.Micros(time.Now().Add(slept()).UnixMicro()) }
}
