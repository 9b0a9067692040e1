// Package bubble detects testing/synctest bubbles, so that gates pool nothing in them. A channel
// or timer that was created in a bubble is a fatal error outside of it. One that was created
// outside stops the clock of the bubble.
package bubble

import (
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Inside reports whether the caller runs in a bubble.
//
// Inside a bubble, and nowhere else, time.Now has no monotonic clock reading.
// Reading the clock takes 50 ns, so only test binaries do it.
func Inside() bool { return Possible() && detect() }

// Possible reports whether this may be a test binary. Only those have bubbles.
func Possible() bool { return testBinary.Load() != notTest }

func detect() bool {
	if !inTest() {
		return false
	}
	now := time.Now()
	return now == now.Round(0)
}

// testBinary is the result of inTest. It makes Inside small enough to be inlined: calls
// would touch further cache lines of the stack of each waiting goroutine.
var testBinary atomic.Int32

// Values of testBinary.
const (
	unknownTest = iota
	isTest
	notTest
)

// inTest reports whether this may be a test binary, by its name, its arguments or
// its build information. Each alone is insufficient. A binary may have any name, and
// may be run without arguments. The build information of a test of package main is that
// of the program. (The flags of package testing would suffice, but reading them races
// with a program that defines or parses its own flags.)
func inTest() bool {
	if testBinary.Load() == unknownTest {
		found := isTest
		if !isTestBinary(os.Args) {
			if info, ok := debug.ReadBuildInfo(); ok && !strings.HasSuffix(info.Path, ".test") {
				found = notTest
			}
		}
		testBinary.Store(int32(found))
	}
	return testBinary.Load() == isTest
}

func isTestBinary(args []string) bool {
	if len(args) == 0 {
		return true // unknown
	}
	name := strings.TrimSuffix(args[0], ".exe")
	return strings.HasSuffix(name, ".test") || slices.ContainsFunc(args[1:], func(arg string) bool {
		return strings.HasPrefix(strings.TrimLeft(arg, "-"), "test.")
	})
}
