package sema

import (
	"os"
	"runtime/debug"
	"slices"
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
	if !inTest() {
		return false
	}
	now := time.Now()
	return now == now.Round(0)
}

// inTest reports whether this may be a test binary, by its name, its arguments
// or its build information. Each alone would miss some: a binary may be given
// any name, be run without arguments, and for tests of a package main the build
// information is that of the program. (The flags of the testing package would
// tell, but to look at them races with a program that defines or parses its own.)
var inTest = sync.OnceValue(func() bool {
	if looksLikeTest(os.Args) {
		return true
	}
	info, ok := debug.ReadBuildInfo()
	return !ok || strings.HasSuffix(info.Path, ".test")
})

func looksLikeTest(args []string) bool {
	if len(args) == 0 {
		return true // who knows
	}
	name := strings.TrimSuffix(args[0], ".exe")
	return strings.HasSuffix(name, ".test") || slices.ContainsFunc(args[1:], func(arg string) bool {
		return strings.HasPrefix(strings.TrimLeft(arg, "-"), "test.")
	})
}

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
