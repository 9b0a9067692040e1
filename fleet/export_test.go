package fleet

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// UseBubbleClock has the client go by the time of a synctest bubble, in which
// the machine's clock has no part.
func (c *Client) UseBubbleClock() {
	c.clock = func() protocol.Micros { return protocol.Micros(time.Now().UnixMicro()) }
}
