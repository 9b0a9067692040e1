//go:build !linux

package fleet

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

var started = time.Now()

// bootClock is the later of two clocks, where there is none that both goes on
// while the machine sleeps and never steps: the monotonic one, and the time of
// day. A lease may seem to end early by that, and never late.
func bootClock() protocol.Micros {
	now := time.Now()
	return protocol.Micros(max(now.Sub(started), now.Round(0).Sub(started.Round(0))).Microseconds())
}
