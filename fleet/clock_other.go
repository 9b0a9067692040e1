//go:build !linux

package fleet

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

var started = time.Now()

// bootClock returns the later of the monotonic clock and the time of day. No clock here
// both continues while the machine sleeps and never steps. So a lease may seem to end
// early, and never late.
func bootClock() protocol.Micros {
	now := time.Now()
	return protocol.Micros(max(now.Sub(started), now.Round(0).Sub(started.Round(0))).Microseconds())
}
