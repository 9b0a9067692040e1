package fleet

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// UseBubbleClock has the client go by the time of a synctest bubble, in which
// the machine's clock has no part.
func (c *Client) UseBubbleClock() { c.UseSleepyClock(func() time.Duration { return 0 }) }

// UseSleepyClock adds what the machine has slept through to the bubble's time:
// timers stand still meanwhile, the clock does not.
func (c *Client) UseSleepyClock(slept func() time.Duration) {
	c.clock = func() protocol.Micros { return protocol.Micros(time.Now().Add(slept()).UnixMicro()) }
}
