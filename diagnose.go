package sema

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// A Level says how closely a semaphore is watched for leaks, overlong holds,
// acquire-order inversions and deadlocks.
type Level uint8

const (
	// Off costs nothing. The default.
	Off Level = iota
	// Sampled records one acquire in 128, with its stack. Cheap enough to
	// leave on; finds what happens often. A holder is known by [Permit.Context].
	Sampled
	// Full records every acquire, with its stack and goroutine: some
	// microseconds each. Deadlocks are looked for at this level only.
	Full
)

const sampleEvery = 128

// Diagnose sets the level of one semaphore, whatever the environment variable
// SEMA_DEBUG (off, sampled or full) says for the process.
func Diagnose(l Level) SharedOption {
	if l > Full {
		panic(fmt.Sprintf("sema: Diagnose(%d): want Off, Sampled or Full", l))
	}
	return sharedFunc(func(c *config) { c.reports.level = l })
}

// WarnHold reports, as an [Overheld] event with the stack of the acquire, each
// permit held for longer than d. Every acquire is recorded for it, as with
// Diagnose([Full]). It panics unless d is positive.
func WarnHold(d time.Duration) SharedOption {
	if d <= 0 {
		panic(fmt.Sprintf("sema: WarnHold(%v): want a positive duration", d))
	}
	return sharedFunc(func(c *config) { c.reports.warnHold = d })
}

// processLevel is what SEMA_DEBUG asks for.
var processLevel = sync.OnceValue(func() Level {
	value := os.Getenv("SEMA_DEBUG")
	level, ok := parseLevel(value)
	if !ok {
		slog.Warn("sema: SEMA_DEBUG ignored: want off, sampled or full", "value", value)
	}
	return level
})

func parseLevel(s string) (l Level, ok bool) {
	switch strings.ToLower(s) {
	case "", "off":
		return Off, true
	case "sampled":
		return Sampled, true
	case "full":
		return Full, true
	}
	return Off, false
}

func (l Level) String() string {
	switch l {
	case Off:
		return "off"
	case Sampled:
		return "sampled"
	case Full:
		return "full"
	}
	return fmt.Sprintf("Level(%d)", uint8(l))
}

// sampleWeight is how many waits a recorded one stands for.
func (m *Monitor) sampleWeight() int64 {
	if m.level == Sampled && m.warnHold == 0 {
		return sampleEvery
	}
	return 1
}

var defaultLog = LogTo(nil)
