package sema

import (
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// inBubble reports whether the caller runs in a testing/synctest bubble. A
// channel or timer made in a bubble is a fatal error outside it, and one made
// outside stops the bubble's clock; so in a bubble neither is ever reused.
//
// Inside a bubble, and nowhere else, time.Now carries no monotonic reading.
// Reading the clock is 50 ns, so it is asked only in test binaries.
func inBubble() bool {
	if !mayBubble() {
		return false
	}
	now := time.Now()
	return now == now.Round(0)
}

// mayBubble is false only where no bubble can exist: in a program that was
// built, as its build information says, from a package that is no test.
var mayBubble = sync.OnceValue(func() bool {
	info, ok := debug.ReadBuildInfo()
	return !ok || strings.HasSuffix(info.Path, ".test")
})

var timerPool sync.Pool

func newTimer(d time.Duration) *time.Timer {
	if !inBubble() {
		if t, ok := timerPool.Get().(*time.Timer); ok {
			t.Reset(d)
			return t
		}
	}
	return time.NewTimer(d)
}

// recycleTimer stops t. Since Go 1.23 a stopped timer's channel is empty.
func recycleTimer(t *time.Timer) {
	t.Stop()
	if !inBubble() {
		timerPool.Put(t)
	}
}
