package sema

import (
	"sync"
	"time"

	"github.com/sema-go/sema/internal/bubble"
)

var timerPool sync.Pool

// newTimer returns a timer from the pool, or a new one.
func newTimer(d time.Duration) *time.Timer {
	if !bubble.Inside() {
		if t, ok := timerPool.Get().(*time.Timer); ok {
			t.Reset(d)
			return t
		}
	}
	return time.NewTimer(d)
}

// recycleTimer stops t and puts it into the pool. Since Go 1.23 the channel of a
// stopped timer is empty.
func recycleTimer(t *time.Timer) {
	t.Stop()
	if !bubble.Inside() {
		timerPool.Put(t)
	}
}
