package overload

import (
	"context"
	"math"
	"sync/atomic"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
)

// processorLoad is the load that BBR acts on, in per mille. It reads that of the machine,
// which means nothing to a service in virtual time, so the service sets it.
//
//go:linkname processorLoad github.com/go-kratos/aegis/ratelimit/bbr.gCPU
var processorLoad int64

// aegisBBR returns a limiter with its defaults: it limits while the load is above 80 %. It is
// given the load of the last 100 ms, where on a machine it sees a mean over 10 s; and none at
// first, or else it would begin with the load of the machine.
func aegisBBR([]Class) Gate {
	atomic.StoreInt64(&processorLoad, 0)
	l := bbr.NewLimiter()
	return Gate{
		Admit: func(context.Context, string, int64) (func(Ending), error) {
			done, err := l.Allow()
			return func(Ending) { done(ratelimit.DoneInfo{}) }, err
		},
		InUse: func() int64 { return l.Stat().InFlight },
		Load:  func(busy float64) { atomic.StoreInt64(&processorLoad, int64(math.Round(busy*1000))) },
	}
}

// loadEvery is how often an implementation receives the load.
const loadEvery = 100 * time.Millisecond
