package sema

import (
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// inTest reports whether this may be a test binary in which tests have begun.
// Its name or arguments mostly tell; otherwise the flags that the testing
// package defines, once it has parsed them, which is before the first test. The
// build information does not tell: for tests of a package main it is that of
// the program.
func inTest() bool {
	return startedAsTest || testFlags.defined()
}

var startedAsTest = looksLikeTest(os.Args)

func looksLikeTest(args []string) bool {
	if len(args) == 0 {
		return true // who knows
	}
	name := strings.TrimSuffix(args[0], ".exe")
	return strings.HasSuffix(name, ".test") || slices.ContainsFunc(args[1:], func(arg string) bool {
		return strings.HasPrefix(strings.TrimLeft(arg, "-"), "test.")
	})
}

var testFlags testFlagCheck

type testFlagCheck struct{ answer atomic.Int32 }

const (
	notAsked = iota
	noTest
	aTest
)

func (c *testFlagCheck) defined() bool {
	answer := c.answer.Load()
	if answer == notAsked && flag.Parsed() {
		answer = noTest
		if flag.Lookup("test.v") != nil {
			answer = aTest
		}
		c.answer.Store(answer)
	}
	return answer == aTest
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
